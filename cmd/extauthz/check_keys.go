package main

import (
	"maps"
	"slices"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// unnamedPlans warns of plans of the API keys in a file that are no value of a rule. Such a value can come from a
// policy, or from the header with the plan. Rules without values for plans limit all plans alike and are no mistake.
func unnamedPlans(file string, keys []apikey.Record, set rules.Set) (problems rules.Problems) {
	plans := map[string]int{} // to the number of keys
	for _, r := range keys {
		if state := r.State(time.Now()); r.Plan != "" && state != "disabled" && state != "expired" {
			plans[r.Plan]++
		}
	}
	ofPlans := entriesOfPlans(set)
	var values []string
	anyPlan, named := false, false
	var walk func(nodes []ratelimit.Node)
	walk = func(nodes []ratelimit.Node) {
		for _, n := range nodes {
			ofPlan := slices.Contains(ofPlans, n.Key)
			anyPlan, named = anyPlan || ofPlan && n.Value == "", named || ofPlan && n.Value != ""
			if n.Value != "" {
				values = append(values, n.Value)
			}
			walk(n.Descriptors)
		}
	}
	for _, d := range set.Domains {
		walk(d.Descriptors)
	}
	if anyPlan && !named {
		return nil
	}
	for _, plan := range slices.Sorted(maps.Keys(plans)) {
		if slices.ContainsFunc(values, func(v string) bool { return descriptors.Match(v, plan) }) {
			continue
		}
		p := strictyaml.Problem{File: file, Warning: true,
			Message: "no rule names the plan " + suggest.Quoted(plan) + " of " + suggest.Counted(plans[plan], "key"),
			Hints:   []string{"add a descriptor with this `value`, or correct the plan"}}
		if hint := suggest.DidYouMean(plan, values); hint != "" {
			p.Hints = []string{hint}
		}
		problems = append(problems, p)
	}
	return problems
}

// entriesOfPlans returns the keys of the entries that policies make of plans.
func entriesOfPlans(set rules.Set) (keys []string) {
	for _, policy := range set.Policies {
		for _, limit := range policy.Limits {
			for _, action := range limit.Actions {
				if c := action.Credential; c != nil && c.Field.String() == "plan" {
					key := "plan"
					if c.Key != nil {
						key = *c.Key
					}
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}
