package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// ruleFile returns the policy and its limits.
func (s *spring) ruleFile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\n\nauthz:\n", scalar(s.options.Domain))
	keys := s.keys()
	if slices.ContainsFunc(keys, func(k SpringKey) bool { return !k.anonymous() }) {
		b.WriteString("  credentials:\n    - api_key: { header: x-api-key }\n")
		if s.empty.Pass {
			b.WriteString("  absent: { pass: true }\n")
		} else {
			fmt.Fprintf(&b, "  absent: { status: %d }\n", s.empty.Status)
		}
	}
	b.WriteString("  access:\n")
	for _, r := range s.routes {
		var conditions []string
		if len(r.Methods) > 0 {
			conditions = append(conditions, "methods: ["+strings.Join(r.Methods, ", ")+"]")
		}
		conditions = append(conditions, "path: { "+r.form+": "+scalar(r.pattern)+" }")
		if !r.Limited() || r.Key.anonymous() {
			conditions = append(conditions, "require: open")
		}
		fmt.Fprintf(&b, "    - { %s } # %s\n", strings.Join(conditions, ", "), comment(s.At(r.at)))
	}
	b.WriteString("  limits:\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "    - actions:\n        - path:\n        - %s\n", key.Action)
		if s.costs() {
			b.WriteString("      cost: { extension: requested_tokens }\n")
		}
	}
	b.WriteString("\ndescriptors:\n")
	writeNodes(&b, s.nodes(), "  ")
	return b.String()
}

// keys returns the keys of all limits, each once.
func (s *spring) keys() (keys []SpringKey) {
	for _, r := range s.routes {
		if r.Limited() && !slices.Contains(keys, r.Key) {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// costs reports whether a request of a route costs more than one token.
func (s *spring) costs() bool {
	return slices.ContainsFunc(s.routes, func(r *SpringRoute) bool { return r.Tokens > 1 })
}

// nodes returns a rule for each route with a limit, and those without one that a wildcard would match.
func (s *spring) nodes() (nodes []ratelimit.Node) {
	for _, r := range s.routes {
		n := ratelimit.Node{Key: "path", Value: r.text}
		switch {
		case s.passesBy(r):
			for _, key := range s.keys() {
				pass := ratelimit.Node{Key: key.Entry, Limits: []ratelimit.Limit{{Unlimited: true}}}
				n.Descriptors = append(n.Descriptors, pass)
			}
		case !r.Limited():
			continue
		default:
			spec := r.spec()
			n.Descriptors = []ratelimit.Node{{Key: r.Key.Entry, Limits: []ratelimit.Limit{{
				Unit: spec.Unit, Requests: &spec.Requests, Algorithm: spec.Algorithm, Burst: spec.Burst,
				Name: unusual.ReplaceAllString(r.ID, "_"), Position: s.At(r.filter),
			}}}}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// envoyRoutes returns the routes of Envoy that send the domain and the cost of each request.
func (s *spring) envoyRoutes() string {
	var b strings.Builder
	for _, r := range s.routes {
		fmt.Fprintf(&b, "- match: { %s }\n  route: { cluster: application }\n", r.match())
		extensions := "domain: " + scalar(s.options.Domain)
		if s.costs() && r.Limited() {
			extensions += fmt.Sprintf(`, requested_tokens: "%d"`, r.Tokens)
		}
		fmt.Fprintf(&b, `  typed_per_filter_config:
    envoy.filters.http.ext_authz:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
      check_settings: { context_extensions: { %s } }
`, extensions)
	}
	return b.String()
}

// match returns the match of a route of Envoy.
func (r *SpringRoute) match() string {
	match := "path: " + scalar(r.pattern)
	switch {
	case r.form == "template":
		match = "safe_regex: { regex: " + scalar(r.expression) + " }"
	case r.form == "prefix" && r.pattern == "/":
		match = "prefix: /"
	case r.form == "prefix":
		match = "path_separated_prefix: " + scalar(r.pattern)
	}
	if len(r.Methods) > 0 {
		match += `, headers: [{ name: ":method", string_match: { safe_regex: { regex: ` +
			scalar(strings.Join(r.Methods, "|")) + " } } }]"
	}
	return match
}
