package migrate

import (
	"cmp"
	"slices"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

// SpringKind describes the configuration of a Spring application, such as application.yml.
func SpringKind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun:      "configuration of Spring",
		Begins:    "it has `spring:` with `cloud.gateway.routes` below it; properties files cannot be converted",
		Second:    "convert each document of the file separately: each can belong to another profile",
		MaxSize:   4 << 20,
		TooLarge:  "is this a configuration of Spring?",
		MaxValues: 500_000,
	}
}

// SpringOptions are what the configuration does not have.
type SpringOptions struct {
	// Domain is the domain of the policy.
	Domain string
	// Keys tell by what the KeyResolver beans limit, by their names. The one named "" is for all others.
	Keys map[string]SpringKey
}

// Spring converts the routes of a configuration with the filter RequestRateLimiter and its RedisRateLimiter into a rule
// file with a policy of ext_authz. The path of a route and the key of its KeyResolver choose the bucket.
func Spring(f strictyaml.File, o SpringOptions) *Converted {
	s := &spring{reading: reading{Document: strictyaml.Read(f, SpringKind())}, options: o}
	if s.Root() != nil {
		s.read()
	}
	c := &Converted{Problems: s.Problems()}
	if !slices.ContainsFunc(s.routes, (*SpringRoute).Limited) {
		if !c.Problems.HasErrors() {
			c.note("No route has the filter RequestRateLimiter: there is nothing to convert.")
		}
		return c
	}
	c.add(c.fileName(o.Domain), f.Name, s.ruleFile())
	c.Routes = s.envoyRoutes()
	c.Settings = []string{"RESPONSE_HEADERS=" + s.headers}
	c.note("Envoy must send domain %s and the cost with each route: see its routes.", suggest.Quoted(o.Domain))
	for _, bean := range s.resolvers {
		c.note("The key of %s is what its Java code returns, which this command cannot read. The policy takes the owner "+
			"of an API key in x-api-key; for another key add --key %s=header:NAME, for example.", suggest.Quoted(bean), bean)
	}
	c.check()
	c.Gateway = SpringGateway{Routes: s.routes, NoHeaders: s.headers == "off", Renamed: s.renamed}
	return c
}

// spring reads one configuration.
type spring struct {
	reading
	options SpringOptions
	// gateway has the properties of the gateway: the current ones, or those before Spring Cloud Gateway 4.3.
	gateway []string
	routes  []*SpringRoute
	// resolvers are the KeyResolver beans that no option names.
	resolvers []string
	headers   string // RESPONSE_HEADERS
	renamed   bool   // the gateway sends headers under other names
	empty     EmptyKey
	// lost means that the limit of all routes was reported, because it has no equivalent.
	lost bool
}

// read reads the routes and the properties of the filter.
func (s *spring) read() {
	s.gateway = []string{"spring", "cloud", "gateway", "server", "webflux"}
	routes := s.property("routes")
	if routes == nil {
		s.gateway = s.gateway[:3]
		routes = s.property("routes")
	}
	if !routes.IsList() {
		s.Fail(routes, "the file has no list `spring.cloud.gateway.routes` or `spring.cloud.gateway.server.webflux.routes`",
			"routes of Java code, of properties files and of the MVC gateway cannot be converted")
		return
	}
	s.properties()
	byDefault := s.defaultLimiter()
	for _, v := range routes.Items() {
		if r := s.route(v, byDefault); r != nil {
			s.routes = append(s.routes, r)
		}
	}
	slices.SortStableFunc(s.routes, func(a, b *SpringRoute) int { return cmp.Compare(a.order, b.order) })
	s.checkPaths()
	s.checkKeys()
	s.checkEmpty()
}

func (s *spring) property(path ...string) *strictyaml.Value {
	return find(s.Root(), append(s.gateway[:len(s.gateway):len(s.gateway)], path...)...)
}

// route reads one route. It returns nil if the route has no equivalent, which it reports.
func (s *spring) route(v *strictyaml.Value, byDefault *SpringLimit) *SpringRoute {
	if !v.IsMap() {
		s.Fail(v, "a route is a map, not "+v.String())
		return nil
	}
	s.failed = false
	r := &SpringRoute{at: v, ID: find(v, "id").Text()}
	own, count := s.filters(find(v, "filters"), r.ID)
	if limit := cmp.Or(own, byDefault); limit != nil {
		r.SpringLimit = *limit
	}
	lost := s.failed || own == nil && s.lost
	limited := r.Limited() || lost
	if own != nil && byDefault != nil || count > 1 {
		s.Fail(v, "this route has two filters RequestRateLimiter", "write the limits of the route by hand, as `limits`")
		return nil
	}
	r.order = s.optional(find(v, "order"), "order", -1<<31, 0)
	if !s.predicates(r, find(v, "predicates"), limited) || lost || s.failed {
		return nil
	}
	return r
}

// checkPaths reports routes whose limits would share buckets, because their paths are the same.
func (s *spring) checkPaths() {
	first := map[string]*SpringRoute{}
	s.routes = slices.DeleteFunc(s.routes, func(r *SpringRoute) bool {
		other := first[r.text]
		if other == nil {
			first[r.text] = r
			return false
		}
		if !r.Limited() && !other.Limited() {
			return false
		}
		s.Fail(r.at, "this route has the same path as the one at "+s.At(other.at)+
			", and the path chooses the limit and its buckets", "write its limit by hand, with one more action such as `method`")
		return true
	})
}

// passesBy reports whether a route needs a rule without a limit, because the pattern of another route matches its path.
func (s *spring) passesBy(r *SpringRoute) bool {
	return !r.Limited() && slices.ContainsFunc(s.routes, func(other *SpringRoute) bool {
		return other.Limited() && descriptors.Match(other.text, r.text)
	})
}
