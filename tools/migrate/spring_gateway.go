package migrate

import (
	"slices"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// SpringGateway is what a comparison has to know of a Spring Cloud Gateway.
type SpringGateway struct {
	// Routes are the converted routes, in the order in which the gateway tries them.
	Routes []*SpringRoute
	// NoHeaders is set if the gateway sends no rate limit headers, Renamed if it sends some of them under other names.
	NoHeaders, Renamed bool
}

// SpringRoute is a route of a Spring Cloud Gateway that has an equivalent, and its limit.
type SpringRoute struct {
	ID string
	// Methods are the methods of the route. None means all.
	Methods []string
	SpringPath
	SpringLimit

	at    *strictyaml.Value
	order int64
}

// Route returns the first route that takes a request, nil for none.
func (g SpringGateway) Route(method, path string) *SpringRoute {
	i := slices.IndexFunc(g.Routes, func(r *SpringRoute) bool {
		return r.paths.MatchString(path) && (len(r.Methods) == 0 || slices.Contains(r.Methods, method))
	})
	if i < 0 {
		return nil
	}
	return g.Routes[i]
}

// NeedsKey reports whether a route limits by the owner of an API key.
func (g SpringGateway) NeedsKey() bool {
	return slices.ContainsFunc(g.Routes, func(r *SpringRoute) bool { return r.Limited() && r.Key.Source == "owner" })
}
