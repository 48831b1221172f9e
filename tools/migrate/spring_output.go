package migrate

import (
	"fmt"
	"regexp"
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
		if s.empty.pass {
			b.WriteString("  absent: { pass: true }\n")
		} else {
			fmt.Fprintf(&b, "  absent: { status: %d }\n", s.empty.status)
		}
	}
	b.WriteString("  access:\n")
	for _, r := range s.routes {
		var conditions []string
		if len(r.methods) > 0 {
			conditions = append(conditions, "methods: ["+strings.Join(r.methods, ", ")+"]")
		}
		conditions = append(conditions, "path: { "+r.path.form+": "+scalar(r.path.pattern)+" }")
		if r.limiter == nil || r.limiter.key.anonymous() {
			conditions = append(conditions, "require: open")
		}
		fmt.Fprintf(&b, "    - { %s } # %s\n", strings.Join(conditions, ", "), comment(s.At(r.at)))
	}
	b.WriteString("  limits:\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "    - actions:\n        - path:\n        - %s\n", key.Action)
		if s.costs() {
			b.WriteString("      hits_addend: { extension: requested_tokens }\n")
		}
	}
	b.WriteString("\ndescriptors:\n")
	writeNodes(&b, s.nodes(), "  ")
	return b.String()
}

// keys returns the keys of all limits, each once.
func (s *spring) keys() (keys []SpringKey) {
	for _, r := range s.routes {
		if r.limiter != nil && !slices.Contains(keys, r.limiter.key) {
			keys = append(keys, r.limiter.key)
		}
	}
	return keys
}

// costs reports whether a request of a route costs more than one token.
func (s *spring) costs() bool {
	return slices.ContainsFunc(s.routes, func(r *springRoute) bool { return r.limiter != nil && r.limiter.tokens != 1 })
}

// nodes returns a rule for each route with a limit, and those without one that a wildcard would match.
func (s *spring) nodes() (nodes []ratelimit.Node) {
	for _, r := range s.routes {
		n := ratelimit.Node{Key: "path", Value: r.path.text}
		switch {
		case s.passesBy(r):
			for _, key := range s.keys() {
				pass := ratelimit.Node{Key: key.Entry, Limits: []ratelimit.Limit{{Unlimited: true}}}
				n.Descriptors = append(n.Descriptors, pass)
			}
		case r.limiter == nil:
			continue
		default:
			spec := r.limiter.spec()
			n.Descriptors = []ratelimit.Node{{Key: r.limiter.key.Entry, Limits: []ratelimit.Limit{{
				Unit: spec.Unit, Requests: &spec.Requests, Algorithm: spec.Algorithm, Burst: spec.Burst, Name: safeName(r.id),
				Position: s.At(r.limiter.at),
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
		if s.costs() && r.limiter != nil {
			extensions += fmt.Sprintf(`, requested_tokens: "%d"`, r.limiter.tokens)
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
func (r *springRoute) match() string {
	match := "path: " + scalar(r.path.pattern)
	switch {
	case r.path.form == "template":
		expression := variable.ReplaceAllString(regexp.QuoteMeta(r.path.pattern), "[^/]+")
		match = "safe_regex: { regex: " + scalar(expression) + " }"
	case r.path.form == "prefix" && r.path.pattern == "/":
		match = "prefix: /"
	case r.path.form == "prefix":
		match = "path_separated_prefix: " + scalar(r.path.pattern)
	}
	if len(r.methods) > 0 {
		match += `, headers: [{ name: ":method", string_match: { safe_regex: { regex: ` +
			scalar(strings.Join(r.methods, "|")) + " } } }]"
	}
	return match
}
