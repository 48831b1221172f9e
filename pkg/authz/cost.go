package authz

import (
	"errors"
	"strconv"
	"strings"
)

// Cost is the cost of a request. The first of Rules that matches has it. Otherwise it is the text in Header, Extension
// or Metadata: a number, or a key of Values. Without such a text it is Number, else 1.
type Cost struct {
	Number    int64    `yaml:"number" min:"1" max:"1000000000" doc:"The cost of a request that no other key gives a cost." default:"1" example:"100"`
	Header    *string  `yaml:"header" oneof:"cost,optional" doc:"The request header that states the cost." example:"x-tokens"`
	Extension *string  `yaml:"extension" oneof:"cost,optional" doc:"The key of the context_extensions of the route that states the cost." example:"cost"`
	Metadata  []string `yaml:"metadata" oneof:"cost,optional" min:"1" doc:"The namespace of a filter, and the keys below it, of the metadata that states the cost." example:"[envoy.filters.http.mcp, params, name]"`
	Min       int64    `yaml:"min" min:"1" max:"1000000000" doc:"The least cost that may be stated." default:"1" example:"10"`
	Max       int64    `yaml:"max" min:"1" max:"1000000000" doc:"The largest cost that may be stated, and the cost of a request that states no whole number from min to max." default:"the largest of values" example:"5000"`

	Values map[string]int64 `yaml:"values" min:"0" max:"1000000000" doc:"The cost for each text that may be stated, such as the name of a tool. Another text costs max." example:"{search: 5, image: 50}"`
	Rules  []CostRule       `yaml:"rules" min:"1" doc:"Costs by method and path. The first one that matches decides, before the other keys." example:"[{methods: [POST], path: {template: \"/v1/batch/{id}\"}, number: 20}]"`
}

// CostRule is the cost of the requests with a method and a path. An absent key matches every request.
type CostRule struct {
	Methods []string     `yaml:"methods" min:"1" doc:"HTTP methods in upper case." example:"[POST]"`
	Path    *PathPattern `yaml:"path" doc:"The path, as in an access rule." example:"{template: \"/v1/batch/{id}\"}"`
	Number  *int64       `yaml:"number" required:"true" min:"0" max:"1000000000" doc:"The cost of a matching request. 0 charges nothing, but needs one unit that is left." example:"20"`
	// Position is where the rule is, "file:line".
	Position string `yaml:",position"`
}

// Hold makes the last entry of a descriptor the id of a hold.
type Hold struct {
	RequestHeader *string `yaml:"request_header" required:"true" doc:"The request header with the id of the hold." example:"x-hold-id"`
}

// price is a compiled Cost. nil is an implicit 1.
type price struct {
	rules  []accessRule
	costs  []int64               // of rules
	stated func(f *facts) string // nil if nothing states the cost
	values map[string]int64
	least  uint64
	most   uint64 // 0 for no bounds
	number uint64
}

func (c *Cost) compile() *price {
	p := &price{values: c.Values, number: uint64(max(1, c.Number)), least: uint64(max(1, c.Min)), most: uint64(c.most())}
	for i := range c.Rules {
		p.rules, p.costs = append(p.rules, c.Rules[i].compile()), append(p.costs, *c.Rules[i].Number)
	}
	switch {
	case c.Header != nil:
		header := strings.ToLower(*c.Header)
		p.stated = func(f *facts) string {
			value, _ := f.request.Headers.Get(header)
			return value
		}
	case c.Extension != nil:
		p.least = uint64(c.Min) // no client sets it, so it can be 0
		p.stated = func(f *facts) string { return f.request.Extensions[*c.Extension] }
	case c.Metadata != nil:
		p.stated = func(f *facts) string { return f.request.metadata(c.Metadata) }
	case len(c.Rules) == 0 && c.Number == 0:
		return nil
	}
	return p
}

// most returns Max with its default.
func (c *Cost) most() (most int64) {
	if most = c.Max; most == 0 {
		for _, n := range c.Values {
			most = max(most, n)
		}
	}
	return most
}

// compile returns the access rule with the same requests. It restricts, so it also matches variants of them.
func (r *CostRule) compile() accessRule {
	return (&Access{Methods: r.Methods, Path: r.Path, Require: NeedCredential, Position: r.Position}).compile()
}

// of returns the cost of a request, nil for an implicit 1. With bounds, a text outside of them costs the upper bound,
// so that no client pays less for it. Without bounds, a number is at least 1 if a client can set it.
func (p *price) of(f *facts) *uint64 {
	if p == nil {
		return nil
	}
	if len(p.rules) > 0 {
		other := otherEnd(f.path)
		for i := range p.rules {
			if p.rules[i].match(f.request, f.host, f.path, other) {
				return new(uint64(p.costs[i]))
			}
		}
	}
	if p.stated == nil {
		return new(p.number)
	}
	text := strings.Trim(p.stated(f), " \t")
	if p.values != nil {
		if n, ok := p.values[text]; ok {
			return new(uint64(n))
		}
		return new(p.most)
	}
	n, err := strconv.ParseUint(text, 10, 64) // the largest number if it is out of range
	switch {
	case p.most > 0 && (err != nil || n < p.least || n > p.most):
		return new(p.most)
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return new(p.number)
	}
	return new(max(p.least, n))
}
