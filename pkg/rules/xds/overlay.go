package xds

import (
	"maps"
	"reflect"
	"slices"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// overlayRoot is the content of an overlay.
type overlayRoot struct {
	Domains  []overlayDomain          `yaml:"domains" doc:"What the overlay adds to the rules of domains."`
	Networks map[string]networks.List `yaml:"networks" doc:"Lists of prefixes by name, for the policies of the overlay." example:"{office: [10.0.0.0/8]}"`
	End      bool                     `yaml:"end" doc:"The last key. It marks a complete file. RULES_REQUIRE_END requires it."`
	// lists are the prefixes of Networks.
	lists networks.Lists
}

// overlayDomain is what an overlay adds to a domain.
type overlayDomain struct {
	Domain string        `yaml:"domain" doc:"The domain." example:"shop" required:"true"`
	Rules  []overlayRule `yaml:"rules" doc:"What is added to rules of the xDS server."`
	Authz  *authz.Policy `yaml:"authz,bare" doc:"The policy of ext_authz. It does not depend on the xDS server."`
}

// overlayRule is what an overlay adds to the rules that it names.
type overlayRule struct {
	Rule string `yaml:"rule" doc:"The name of the rule, as /rlconfig shows it." example:"api_key.path_/search"`
	Name string `yaml:"name" doc:"The name of the rate limit (rate_limit.name)." example:"per-key"`

	RateLimit *ratelimit.Limit  `yaml:"rate_limit" doc:"Keys for its rate limit, except those that the server sends."`
	Limits    []ratelimit.Limit `yaml:"limits" doc:"More limits beside that of the server. All of them apply."`

	// Modes are nil if the entry does not set them: false switches a mode of the server or of an earlier entry off.
	Shadow         *bool `yaml:"shadow_mode" doc:"Decides and counts requests, but never denies one." default:"false"`
	Quota          *bool `yaml:"quota_mode" doc:"Denies a request only if all its quotas are over their limits." default:"false"`
	DetailedMetric *bool `yaml:"detailed_metric" doc:"Metrics name all values of a request." default:"false"`
	ValueToMetric  *bool `yaml:"value_to_metric" doc:"Metrics name the value of this entry." default:"false"`
	ShareThreshold *bool `yaml:"share_threshold" doc:"All values that a wildcard matches share one bucket." default:"false"`
	// Metadata replaces that of the server.
	Metadata map[string]any `yaml:"metadata" doc:"Data for Envoy, with requests that this rule allows."`
	// Position is the position of the entry, "file:line".
	Position string `yaml:",position"`
	// given are the keys of RateLimit that the entry has. The value of one can be the zero value.
	given []reflect.StructField
}

// overlayKind describes overlays and their parts.
func overlayKind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun:   "overlay",
		Begins: "it begins with `domains:`",
		Empty:  "there is nothing in the overlay: to add nothing, write `domains: []`, or unset CONFIG_GRPC_XDS_OVERLAY",
		Second: "an overlay is one document: put all domains into its list `domains`",
		Sections: append([]strictyaml.Section{
			{Type: reflect.TypeFor[overlayRoot]()},
			{Type: reflect.TypeFor[overlayDomain](), Example: "- domain: shop"},
			{Type: reflect.TypeFor[overlayRule](), Example: "- {rule: api_key, rate_limit: {algorithm: token_bucket}}"},
		}, file.Sections()...),
		MaxSize:   4 << 20,
		TooLarge:  "is this an overlay?",
		MaxValues: 500_000,
		Mask:      rules.Mask,
	}
}

// decodeOverlay reads an overlay and reports all its mistakes that do not depend on rules. The start, each set of rules
// and CheckOverlay use it. The zero File adds nothing. An overlay is decoded for each set of rules, because its other
// problems depend on them.
func decodeOverlay(f poll.File, cfg *Config) (*overlayRoot, *strictyaml.Document) {
	root := new(overlayRoot)
	if f.Name == "" {
		return root, strictyaml.NewDocument(f, overlayKind())
	}
	doc := strictyaml.Decode(f, overlayKind(), root)
	file.CheckEnd(doc, root.End, cfg.RequireEnd)
	root.readNetworks(doc)
	alone := cfg.Check
	alone.Networks = root.lists
	domains := valueOf(doc.Root(), "domains").Items()
	var m ratelimit.Mistakes
	first := map[string]int{}
	for i, d := range root.Domains {
		at := ratelimit.Element("domains", i)
		if d.Domain == "" {
			m.At(at, at+".domain").Lacking().Fail("an element of `domains` without `domain`", "add `domain: <name>`")
		} else if _, known := first[d.Domain]; known {
			m.At(at+".domain").Fail("duplicate domain "+suggest.Quoted(d.Domain), "put all that is for it into one element")
		}
		first[d.Domain] = i
		set := map[[3]string]string{} // the position of the entry that sets a key of a rule
		own, entries := ratelimit.Domain{Name: d.Domain}, valueOf(domains[i], "rules").Items()
		for j := range d.Rules {
			d.Rules[j].check(&m, ratelimit.Element(at+".rules", j), valueOf(entries[j], "rate_limit"), set)
			own.Descriptors = append(own.Descriptors, ratelimit.Node{RateLimit: d.Rules[j].RateLimit, Limits: d.Rules[j].Limits})
		}
		if d.Authz != nil {
			doc.Add(at+".authz", d.Authz.Check()...)
			doc.Add(at+".authz", slices.DeleteFunc(d.Authz.CheckDomain(&own, alone), func(m ratelimit.Mistake) bool {
				return m.Warning // it depends on rules of the server, unlike an error
			})...)
		}
	}
	doc.Add("", m.All()...)
	return root, doc
}

// valueOf returns the value of a key in a map, nil for none.
func valueOf(v *strictyaml.Value, key string) *strictyaml.Value { return maps.Collect(v.Fields())[key] }

// readNetworks sets the prefixes of the networks, and adds their mistakes to the document.
func (root *overlayRoot) readNetworks(doc *strictyaml.Document) {
	root.lists = networks.Lists{}
	for _, name := range slices.Sorted(maps.Keys(root.Networks)) {
		l, at := root.Networks[name], "networks."+name
		if l.File != "" {
			doc.Add(at, suggest.Mistake{Path: "file", OnKey: true, Message: "an overlay has no prefix files",
				Hints: []string{"write the prefixes here, in brackets"}})
		}
		root.lists[name] = networks.Read(l.Prefixes, func(i int, m suggest.Mistake) {
			doc.Add(ratelimit.Element(at, i), m)
		})
	}
}

// fromServer are the keys of a rate limit that RateLimitConfig has.
var fromServer = []string{"unit", "requests_per_unit", "unlimited"}

// check reports an entry that names no rule or adds nothing, and keys that only the xDS server can set. It also reports
// keys that an earlier entry for the same rule and name sets: set has their positions. limit is `rate_limit` in the
// file. check sets e.given.
func (e *overlayRule) check(m *ratelimit.Mistakes, at string, limit *strictyaml.Value, set map[[3]string]string) {
	if e.Rule == "" && e.Name == "" {
		m.At(at, at+".rule", at+".name").Lacking().Fail("an element of `rules` names no rule",
			"add `rule: <its name in /rlconfig>`, or `name: <the name of its rate limit>`")
	}
	setOnce := func(key string) {
		if first, twice := set[[...]string{e.Rule, e.Name, key}]; twice && key != "limits" {
			m.Key(at+"."+key).Warn(suggest.Quoted(key)+" of the same rule is set twice", "the first is at "+first+
				", and this one replaces it: delete one of them")
		}
		set[[...]string{e.Rule, e.Name, key}] = e.Position
	}
	added := *e
	added.Rule, added.Name, added.RateLimit = "", "", nil
	keys := maps.Collect(limit.Fields())
	maps.DeleteFunc(keys, func(_ string, v *strictyaml.Value) bool { return v.IsAbsent() })
	adds := len(keys) > 0
	for key := range strictyaml.Given(reflect.ValueOf(added)) {
		adds = adds || key != "limits" || len(e.Limits) > 0
		setOnce(key)
	}
	if !adds {
		m.At(at, at+".rate_limit", at+".limits").Lacking().Fail("an element of `rules` adds nothing",
			"add `rate_limit`, `limits`, or another key such as `shadow_mode`")
	}
	if e.RateLimit == nil {
		return
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[ratelimit.Limit]()) {
		name, _ := strictyaml.Key(f)
		if keys[name] == nil {
			continue
		}
		e.given = append(e.given, f)
		setOnce("rate_limit." + name)
		if slices.Contains(fromServer, name) {
			m.Key(at+".rate_limit."+name).Fail(suggest.Quoted(name)+" comes from the xDS server: the overlay cannot set it",
				"delete it; `limits` adds a limit")
		}
	}
}

// watchedOverlay is an overlay whose file is followed.
type watchedOverlay struct {
	follower *poll.Follower
	active   poll.File
	decided  string // the generation of the file that was decided on last
	waiting  bool   // the decision was that the file is incomplete
}

// load reads the overlay at the start.
func (w *watchedOverlay) load(cfg *Config) rules.Problems {
	f, problems, _ := w.take(w.follower.Load())
	if problems.HasErrors() {
		return problems
	}
	w.active = f
	_, doc := decodeOverlay(f, cfg)
	return doc.Problems()
}

// take returns the overlay of a reading, and why it cannot take effect. changed is true once for each decision.
func (w *watchedOverlay) take(r poll.Reading) (f poll.File, problems rules.Problems, changed bool) {
	if len(r.Files) == 0 {
		return f, nil, false
	}
	f = r.Files[0]
	isNew := f.Generation() != w.decided
	if !isNew && !w.waiting {
		return f, nil, false
	}
	if f.Err != nil {
		p := strictyaml.Unread(f, overlayKind())
		p.Warning = false // the operator named this file
		problems = rules.Problems{*p}
	} else {
		problems = file.Incomplete(w.active, f, overlayKind())
	}
	w.decided, w.waiting = f.Generation(), f.Err == nil && problems.HasErrors()
	return f, problems, isNew || !w.waiting
}
