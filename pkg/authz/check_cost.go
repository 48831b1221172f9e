package authz

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// mostCost is the largest cost of a policy.
const mostCost = 1_000_000_000

// checkCost reports keys of a cost that have no effect together, and costs that are out of bounds.
func (c *checker) checkCost(path string, cost *Cost) {
	stated := cost.Header != nil || cost.Extension != nil || cost.Metadata != nil
	given := map[string]bool{
		"number": cost.Number != 0, "min": cost.Min != 0, "max": cost.Max != 0, "values": cost.Values != nil,
	}
	for _, key := range []string{"min", "max", "values"} {
		if given[key] && !stated {
			c.Key(path+"."+key).Fail(suggest.Quoted(key)+" without `header`, `extension` or `metadata`",
				"nothing states a cost: add one of them, or delete "+suggest.Quoted(key))
		}
	}
	switch {
	case !stated:
	case given["min"] && given["values"]:
		c.Key(path+".min").Fail("`min` beside `values`", "delete `min`: `values` has all costs but that of another text")
	case given["min"] && !given["max"]:
		c.Key(path+".min").Fail("`min` without `max`", "add `max`: it is the cost of a request that states less than `min`")
	case cost.Max > 0 && cost.Min > cost.Max:
		c.At(path+".min", path+".max").Fail(fmt.Sprintf("`min` is more than `max`, which is %d", cost.Max),
			"want a number that is at most `max`")
	case given["values"] && cost.most() == 0:
		c.Key(path+".values", path+".max").Fail("each request is free: all `values` are 0",
			"add `max`: the cost of a request with another text")
	}
	if stated && given["number"] && (given["max"] || given["values"]) {
		c.Key(path+".number").Fail("`number` beside `max` or `values`",
			"delete `number`: a request that states no cost costs the upper bound")
	}
	if len(cost.Metadata) == 1 {
		c.At(path+".metadata").Fail("`metadata` names a namespace only", wantMetadata)
	}
	most := cmp.Or(cost.Max, mostCost)
	for _, text := range slices.Sorted(maps.Keys(cost.Values)) {
		if n := cost.Values[text]; n < 0 || n > most {
			c.At(path+".values."+text, path+".max").Fail(
				fmt.Sprintf("the cost of %s cannot be `%d`", suggest.Quoted(text), n),
				fmt.Sprintf("want a whole number from 0 to %d", most))
		}
	}
	c.checkCostRules(path+".rules", cost.Rules)
}

func (c *checker) checkCostRules(path string, rules []CostRule) {
	var before []accessRule
	var paths []string // of before
	for i := range rules {
		r, at := &rules[i], ratelimit.Element(path, i)
		if len(r.Methods) == 0 && r.Path == nil {
			c.At(at, below(at, "methods", "path")...).Lacking().Fail("a rule without `methods` and `path`",
				"add one of them; `number` beside `rules` is the cost of all other requests")
			continue
		}
		c.checkMethods(at+".methods", r.Methods)
		if c.checkPattern(at+".path", r.Path) {
			rule := r.compile()
			c.checkReached(at, &rule, before, paths)
			before, paths = append(before, rule), append(paths, at)
		}
	}
}
