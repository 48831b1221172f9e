package migrate

import (
	"regexp"
	"slices"
	"strings"
)

// SpringGateway is what a comparison has to know of a Spring Cloud Gateway.
type SpringGateway struct {
	// Routes are the converted routes, in the order in which the gateway tries them.
	Routes []SpringRoute
	// NoHeaders is set if the gateway sends no rate limit headers, Renamed if it sends some of them under other names.
	NoHeaders, Renamed bool
}

// SpringRoute is a route of a Spring Cloud Gateway and its limit.
type SpringRoute struct {
	ID string
	// Path matches the decoded paths of the route. Example is one of them, in which * stands for any word.
	Path    *regexp.Regexp
	Example string
	// Methods are the methods of the route. None means all.
	Methods []string
	// Key is by what the route limits.
	Key SpringKey
	// Rate, Burst and Tokens are replenishRate, burstCapacity and requestedTokens. Without a limit, Tokens is 0.
	Rate, Burst, Tokens int64
	// DeniedStatus is the status of a denial, EmptyStatus that of a request without a key. EmptyPasses is set if such a
	// request passes without a limit.
	DeniedStatus, EmptyStatus int
	EmptyPasses               bool
}

// Route returns the first route that takes a request, nil for none.
func (g SpringGateway) Route(method, path string) *SpringRoute {
	i := slices.IndexFunc(g.Routes, func(r SpringRoute) bool {
		return r.Path.MatchString(path) && (len(r.Methods) == 0 || slices.Contains(r.Methods, method))
	})
	if i < 0 {
		return nil
	}
	return &g.Routes[i]
}

// NeedsKey reports whether a route limits by the owner of an API key.
func (g SpringGateway) NeedsKey() bool {
	return slices.ContainsFunc(g.Routes, func(r SpringRoute) bool { return r.Tokens > 0 && r.Key.Source == "owner" })
}

// describe returns what a comparison has to know.
func (s *spring) describe() SpringGateway {
	g := SpringGateway{NoHeaders: s.headers == "off", Renamed: s.renamed}
	for _, r := range s.routes {
		route := SpringRoute{ID: r.id, Methods: r.methods}
		route.Path, route.Example = r.path.forms()
		if l := r.limiter; l != nil {
			route.Key, route.Rate, route.Burst, route.Tokens = l.key, l.rate, l.burst, l.tokens
			route.DeniedStatus, route.EmptyStatus, route.EmptyPasses = l.denied, l.empty.status, l.empty.pass
		}
		g.Routes = append(g.Routes, route)
	}
	return g
}

// variable is a segment of a template in an expression that regexp.QuoteMeta has made.
var variable = regexp.MustCompile(`\\\{[^/]*\\\}`)

// forms returns an expression for the paths, and one of them with * for any word.
func (p springPath) forms() (paths *regexp.Regexp, example string) {
	expression := regexp.QuoteMeta(p.pattern)
	switch p.form {
	case "template":
		return regexp.MustCompile("^" + variable.ReplaceAllString(expression, "[^/]+") + "$"),
			regexp.MustCompile(`\{[^/]*\}`).ReplaceAllString(p.pattern, "*")
	case "prefix":
		return regexp.MustCompile("^" + strings.TrimSuffix(expression, "/") + "(/.*)?$"), p.text
	}
	return regexp.MustCompile("^" + expression + "$"), p.pattern
}
