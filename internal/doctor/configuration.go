package doctor

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// kind describes configurations of Envoy, including dumps of a running Envoy with thousands of routes.
func kind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun:      "configuration of Envoy",
		Begins:    "it begins with `static_resources:`, or is the /config_dump of Envoy's admin interface",
		Second:    "a configuration of Envoy is one document: check each document separately",
		MaxSize:   64 << 20,
		TooLarge:  "is this a configuration of Envoy?",
		MaxValues: 6_000_000,
	}
}

// Rules are the rules and settings that a configuration is compared with.
type Rules struct {
	Policies map[string]*authz.Policy
	// Limits are the rules for rate limit filters. nil: these filters are not compared. If there are no policies either,
	// only what needs no rules is checked.
	Limits *ratelimit.Rules
	// RedisWait is how long a decision should be able to wait for Redis. 0: it does not matter.
	RedisWait time.Duration
	// HTTPTimeout is AUTHZ_HTTP_TIMEOUT, how long the service expects Envoy to wait over HTTP.
	HTTPTimeout time.Duration
}

// Configuration is what was found in a configuration of Envoy.
type Configuration struct {
	Report
	// Managers is the number of HTTP connection managers with an ext_authz or ratelimit filter.
	Managers int
	filters  map[string]bool // ext_authz, ratelimit
	clusters map[string]bool // that they call, true for gRPC
}

// Load reads a configuration of Envoy from a file, or from the admin interface at a URL, and compares it with rules.
func Load(ctx context.Context, from string, rules Rules) *Configuration {
	if IsURL(from) {
		return loadDump(ctx, from, rules)
	}
	file, problem := strictyaml.ReadFile(from, nil, kind())
	if problem == nil {
		return Check(file, rules)
	}
	if problem.Warning { // a directory, or a pipe
		problem.Warning, problem.Message = false, "this is not a regular file"
		problem.Hints = []string{"write the configuration of Envoy into a file"}
	}
	return &Configuration{Report: Report{At: from, Findings: strictyaml.Problems{*problem}}}
}

// Check compares a configuration of Envoy, a bootstrap or a /config_dump in YAML or JSON, with rules. It walks the file
// by the names of Envoy's fields and ignores all others. It does not see what Envoy gets from xDS.
func Check(f strictyaml.File, rules Rules) *Configuration {
	doc := strictyaml.Read(f, kind())
	root := value{doc.Root()}
	if !root.exists() {
		return &Configuration{Report: Report{At: f.Name, Findings: doc.Problems()}}
	}
	c := check{Document: doc, Rules: rules, clusters: clustersOf(root), result: &Configuration{
		Report: Report{At: f.Name}, filters: map[string]bool{}, clusters: map[string]bool{},
	}}
	for _, p := range rules.Policies {
		names := p.Headers.Names()
		c.identity = append(c.identity, names[:]...)
		for _, one := range p.Credentials {
			c.cookies = c.cookies || one.Kind().Place().In == credential.Cookie
		}
	}
	slices.Sort(c.identity)
	c.identity = slices.DeleteFunc(slices.Compact(c.identity), func(name string) bool { return name == "" })
	for _, manager := range root.ofType("HttpConnectionManager") {
		checks := manager.get("http_filters").ofType("ExtAuthz")
		limits := manager.get("http_filters").ofType("RateLimit")
		if len(checks)+len(limits) == 0 {
			continue
		}
		c.result.Managers++
		tables := routeTables(manager, root)
		settings := slices.Clone(checks) // and those that routes have in their place
		for _, table := range tables {
			for _, v := range table.all(func(v value) bool { return v.get("check_settings").exists() }) {
				settings = append(settings, v.get("check_settings"))
			}
		}
		limited := rules.Limits != nil && c.rateLimits(manager, limits, tables)
		switch {
		case len(checks) == 0:
		case len(rules.Policies) > 0:
			c.manager(manager, checks, settings, tables)
		case rules.Limits != nil && !limited:
			c.find("no-policy", checks[0], "no rule file has an `authz:` section to compare this filter with")
		}
		c.checkHolds(manager, checks, tables)
		c.order(manager, tables)
		c.callsOf(settings, limits)
	}
	if c.result.Managers == 0 {
		c.find("no-filter", value{}, "no HTTP connection manager has an ext_authz or ratelimit filter to compare")
	}
	if c.result.Findings = doc.Problems(); len(c.result.Findings) == 0 {
		c.result.fact(suggest.Counted(c.result.Managers, "connection manager") + " with ext_authz or ratelimit")
	}
	return c.result
}

type check struct {
	*strictyaml.Document
	Rules
	result *Configuration
	// identity are the identity headers of all policies, sorted. cookies: a policy takes a credential from a cookie.
	identity []string
	cookies  bool
	// clusters are the names of the clusters that the file has. It is nil if Envoy may get others from xDS.
	clusters []string
	holds    holds // of the present connection manager
}

// find adds a finding at a value, or for the whole file if it does not exist.
func (c *check) find(id string, at value, message string, hints ...string) {
	c.Report(at.Value, finding(id, message, hints...))
}

// manager checks a connection manager, its ext_authz filters and its route tables.
func (c *check) manager(manager value, filters, settings, tables []value) {
	overHTTP := false
	for _, s := range settings {
		if http := s.get("http_service"); http.exists() {
			overHTTP = true
			c.service(http)
		}
		domain := s.get("context_extensions").get(authz.DomainExtension) // a /config_dump hides it
		if domain.exists() && !domain.hasText("[redacted]") && c.Policies[domain.Text()] == nil {
			c.find("domain-without-policy", domain, "no policy has the domain "+suggest.Quoted(domain.Text()),
				suggest.DidYouMean(domain.Text(), slices.Sorted(maps.Keys(c.Policies))))
		}
	}
	c.routes(manager, tables, filters)
	c.removedEarly(manager, overHTTP)
}

// routeTables returns the route configurations of a connection manager, which may stand elsewhere in the file.
func routeTables(manager, root value) []value {
	tables := []value{manager.get("route_config")}
	elsewhere := map[string]bool{manager.get("rds").get("route_config_name").Text(): true}
	for _, scope := range scopesOf(manager.get("scoped_routes"), root) {
		tables = append(tables, scope.get("route_configuration"))
		elsewhere[scope.get("route_configuration_name").Text()] = true
	}
	delete(elsewhere, "")
	return append(tables, root.all(func(v value) bool {
		return v.get("virtual_hosts").exists() && elsewhere[v.get("name").Text()]
	})...)
}

// scopesOf returns the ScopedRouteConfigurations of a `scoped_routes`, with scoped_rds those of its name in a dump.
func scopesOf(scoped, root value) []value {
	if !scoped.get("scoped_rds").exists() {
		return scoped.get("scoped_route_configurations_list").get("scoped_route_configurations").list()
	}
	var scopes []value
	name := scoped.get("name").Text()
	for _, dumped := range root.all(func(v value) bool {
		return v.get("scoped_route_configs").exists() && v.get("name").hasText(name)
	}) {
		scopes = append(scopes, dumped.get("scoped_route_configs").list()...)
	}
	return scopes
}

// removedEarly checks that Envoy removes the client's identity headers before it chooses a route. If Envoy calls
// ext_authz over HTTP, it must also remove their other spellings: the service sees those only over gRPC.
func (c *check) removedEarly(manager value, overHTTP bool) {
	extensions := manager.get("early_header_mutation_extensions")
	kept := func(name string) bool {
		return extensions.all(func(v value) bool {
			matcher := v.get("remove_on_match").get("key_matcher")
			return strings.EqualFold(v.get("remove").Text(), name) || matcher.matches(name)
		}) == nil
	}
	var missed, lookalikes []string
	for _, name := range c.identity {
		others := spellings(name)
		switch i := slices.IndexFunc(others, kept); {
		case kept(name):
			missed = append(missed, name)
		case overHTTP && i >= 0:
			lookalikes = append(lookalikes, others[i])
		}
	}
	const add = "add to the `mutations:` of early_header_mutation_extensions: "
	remedy := func(name string) string {
		if overHTTP {
			return `{remove_on_match: {key_matcher: {safe_regex: {regex: "` + anySeparator(name, "[^a-z0-9]") + `"}}}}`
		}
		return "{remove: " + name + "}"
	}
	at := cmp.Or(extensions, manager)
	if len(missed) > 0 {
		c.find("identity-not-removed", at,
			"Envoy does not remove the client's "+suggest.List(missed, " and ")+" before it chooses a route",
			"the client can then choose a route that matches on it, and a route without ext_authz passes it on",
			add+elements(missed, remedy))
	}
	if len(lookalikes) > 0 {
		c.find("identity-lookalike", at,
			"Envoy does not remove the client's "+suggest.List(lookalikes, " and ")+", and extauthz cannot see it over HTTP",
			"some applications do not distinguish the separators of names, and read it as the identity header",
			add+elements(lookalikes, remedy))
	}
}

// spellings returns names that applications may read as this one: with all of its separators replaced, or one of them.
func spellings(name string) []string {
	var list []string
	for _, separator := range []string{"_", "."} {
		list = append(list, anySeparator(name, separator))
		for i := range name {
			if one := name[:i] + anySeparator(name[i:i+1], separator) + name[i+1:]; one != name {
				list = append(list, one)
			}
		}
	}
	return list
}

var separator = regexp.MustCompile("[^a-z0-9]")

// anySeparator replaces each character of a name that is neither a letter nor a digit.
func anySeparator(name, by string) string { return separator.ReplaceAllLiteralString(name, by) }

func (c *check) service(s value) {
	answer := s.get("authorization_response")
	listed := answer.get("allowed_upstream_headers")
	wanted := slices.Clone(c.identity)
	if c.cookies {
		wanted = append(wanted, "cookie")
	}
	dropped := slices.DeleteFunc(slices.Clone(wanted), listed.get("patterns").anyMatches)
	if len(dropped) > 0 {
		why := "the application then does not know the caller, or trusts the header that the client sends"
		if slices.Equal(dropped, []string{"cookie"}) {
			why = "the credential in the cookie then reaches the application"
		}
		c.find("identity-dropped", cmp.Or(listed, s),
			"Envoy drops "+suggest.List(dropped, " and ")+" from the response: not listed in allowed_upstream_headers",
			why, "add to its `patterns:` "+elements(dropped, func(name string) string { return "{exact: " + name + "}" }))
	}
	appended := answer.get("allowed_upstream_headers_to_append")
	for _, name := range wanted {
		if appended.get("patterns").anyMatches(name) {
			c.find("identity-appended", appended, "Envoy appends "+suggest.Quoted(name)+" to the header that the client sends")
		}
	}
}

// routes checks that Envoy does not choose a route or a route table by an identity header before ext_authz has set it.
func (c *check) routes(manager value, tables, filters []value) {
	choice := func(header value) {
		name := strings.ToLower(header.Text())
		again := slices.ContainsFunc(filters, func(f value) bool { return f.choosesAgain(name) })
		if slices.Contains(c.identity, name) && !again {
			c.find("route-by-identity", header, "Envoy chooses this route before ext_authz sets "+suggest.Quoted(name))
		}
	}
	// clear_route_cache does not help here: without the header there is no scope, no route, and no Check to set it.
	for _, fragment := range manager.get("scoped_routes").get("scope_key_builder").get("fragments").list() {
		header := fragment.get("header_value_extractor").get("name")
		if name := strings.ToLower(header.Text()); slices.Contains(c.identity, name) {
			c.find("scope-by-identity", header, "Envoy chooses the scope of routes before ext_authz sets "+suggest.Quoted(name))
		}
	}
	for _, table := range tables {
		table.walk(func(v value) {
			for _, condition := range v.get("match").get("headers").list() {
				choice(condition.get("name"))
			}
			choice(v.get("cluster_header"))
			choice(v.get("weighted_clusters").get("header_name"))
			v.get("matcher").walk(func(v value) { choice(v.get("header_name")) })
		})
	}
}

// choosesAgain reports whether Envoy chooses the route again after this ext_authz filter has set a header.
func (v value) choosesAgain(header string) bool {
	only := v.get("clear_route_cache_headers").list()
	listed := slices.ContainsFunc(only, func(v value) bool { return strings.EqualFold(v.Text(), header) })
	return v.get("clear_route_cache").hasText("true") && (len(only) == 0 || listed)
}

// matches reports whether a StringMatcher of Envoy matches a name in lower case. An unknown kind matches nothing.
func (v value) matches(name string) bool {
	fold := func(text string) string { return text }
	if v.get("ignore_case").hasText("true") {
		fold = strings.ToLower
	}
	for kind, is := range map[string]func(name, text string) bool{
		"exact":  func(name, text string) bool { return name == text },
		"prefix": strings.HasPrefix, "suffix": strings.HasSuffix, "contains": strings.Contains,
	} {
		if text := fold(v.get(kind).Text()); text != "" && is(name, text) {
			return true
		}
	}
	re, err := regexp.Compile("^(?:" + v.get("safe_regex").get("regex").Text() + ")$")
	return err == nil && re.MatchString(name)
}

// anyMatches reports whether one of a list of StringMatchers matches a name.
func (v value) anyMatches(name string) bool {
	return slices.ContainsFunc(v.list(), func(m value) bool { return m.matches(name) })
}

// isType reports whether a value is an Any with a message of this name, such as ExtAuthz, of any package.
func (v value) isType(name string) bool {
	return strings.HasSuffix(v.get("@type").Text(), "."+name)
}

// ofType returns all values below v, v included, that have a type.
func (v value) ofType(name string) []value {
	return v.all(func(v value) bool { return v.isType(name) })
}

// value is a value of the configuration. The zero value is absent.
type value struct{ *strictyaml.Value }

func (v value) exists() bool { return v.Value != nil }

// get returns the value of a field of a protobuf message. The file may spell its name in snake_case or in camelCase.
func (v value) get(name string) value {
	letters := strings.ReplaceAll(name, "_", "")
	for key, field := range v.Fields() {
		if key == name || strings.EqualFold(key, letters) && snake(key) == name {
			return value{field}
		}
	}
	return value{}
}

func (v value) hasText(text string) bool { return text != "" && v.Text() == text }

func (v value) list() []value {
	items := make([]value, len(v.Items()))
	for i, item := range v.Items() {
		items[i] = value{item}
	}
	return items
}

// walk calls f for a value and all values inside it, except the bootstrap in a /config_dump, which is there again.
func (v value) walk(f func(value)) {
	if !v.exists() || v.isType("BootstrapConfigDump") {
		return
	}
	f(v)
	for _, field := range v.Fields() {
		value{field}.walk(f)
	}
	for _, item := range v.list() {
		item.walk(f)
	}
}

// all returns the values for which is returns true: the value itself, and values inside it.
func (v value) all(is func(value) bool) (found []value) {
	v.walk(func(v value) {
		if is(v) {
			found = append(found, v)
		}
	})
	return found
}

var capital = regexp.MustCompile("[A-Z]")

// snake spells httpFilters as http_filters.
func snake(key string) string {
	return capital.ReplaceAllStringFunc(key, func(c string) string { return "_" + strings.ToLower(c) })
}

func elements(names []string, write func(name string) string) string {
	var written []string
	for _, name := range names {
		written = append(written, write(name))
	}
	return "`" + strings.Join(written, ", ") + "`"
}
