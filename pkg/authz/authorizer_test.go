package authz_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/wire"
)

// TestAuthorizer runs testdata/*.txt: rule files, requests and their answers. A case is a txtar archive of files
// *.yaml, optional settings (domain=…, store=away, mode=shadow or strict), and requests, one on each line:
//
//	METHOD path [name:value …] -> verdict status reason [owner=…] [| up … | remove … | client … | limit …]
//
// ~ is a space and ^ a tab. A name with a colon at its end is a header, which may come twice. Other words are host=,
// source=, principal=, ext.<name>= and meta.<ns>.<key>=. The words headers=, extensions= and values= add that number of
// headers, extensions and values of metadata. The word tcp makes the request one without HTTP, and nohold one that
// cannot be held. quota=always and quota=never are a Request.Quota. A section after | is compared if it is there. It
// has the headers set on the request, the removed headers and query parameters, the headers for the client, the body,
// or the remaining requests of the descriptors.
func TestAuthorizer(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			runCase(t, archive)
		})
	}
}

func runCase(t *testing.T, archive *txtar.Archive) {
	var files []file.File
	requests, settings := "", ""
	for _, f := range archive.Files {
		switch {
		case strings.HasSuffix(f.Name, ".yaml"):
			files = append(files, file.File{Name: f.Name, Content: f.Data})
		case f.Name == "requests":
			requests = string(f.Data)
		case f.Name == "settings":
			settings = string(f.Data)
		}
	}
	a := newAuthorizer(t, files, settings)
	n := 0
	for i, line := range strings.Split(requests, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		n++
		ask, want, ok := strings.Cut(line, " -> ")
		if !ok {
			t.Fatalf("line %d: no ->: %s", i+1, line)
		}
		d := a.decide(t.Context(), parseRequest(t, ask))
		for _, name := range always {
			if d.Verdict == authz.Allowed && !slices.Contains(d.Remove, name) {
				t.Errorf("line %d: %s\n a client's %s survives", i+1, strings.TrimSpace(ask), name)
			}
		}
		for k, section := range strings.Split(want, " | ") {
			section = strings.Join(strings.Fields(section), " ")
			got := describe(&d, section, k)
			if got != section {
				t.Errorf("line %d: %s\n got %s\nwant %s", i+1, strings.TrimSpace(ask), got, section)
			}
		}
	}
	if n == 0 {
		t.Fatal("no requests in the case")
	}
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// decider is an authorizer and its limiter.
type decider struct {
	*authz.Authorizer
	limiter *ratelimit.Limiter
}

// decide answers a request as a transport does.
func (d decider) decide(ctx context.Context, r *authz.Request) authz.Decision {
	ask := func(ctx context.Context, q ratelimit.Query) *ratelimit.Result {
		results := make([]ratelimit.Result, 1)
		d.limiter.DecideAll(ctx, []ratelimit.Query{q}, results)
		return &results[0]
	}
	p := authz.Pending{Peek: ask}
	d.Begin(ctx, r, &p)
	var result *ratelimit.Result
	if len(p.Query.Descriptors) > 0 {
		result = ask(ctx, p.Query)
	}
	d.Finish(&p, result)
	p.Decision.Remove = slices.Concat(p.Decision.Strip.List(), p.Decision.Remove)
	return p.Decision
}

func newAuthorizer(
	t testing.TB, files []file.File, settings string, checkers ...map[string]credential.Checker,
) decider {
	t.Helper()
	rules, problems := file.Parse(files, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Config{Clock: now.UnixMicro})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	cfg := authz.Config{
		Checkers: map[string]credential.Checker{apikey.Name: testKeys(t)}, ProblemBody: true,
		Headers: reply.Headers{Sets: []reply.Set{reply.Draft}},
	}
	for _, c := range checkers {
		maps.Copy(cfg.Checkers, c)
	}
	limits := ratelimit.Config{Store: store, Fallback: store}
	for setting := range strings.FieldsSeq(settings) {
		name, value, _ := strings.Cut(setting, "=")
		switch {
		case name == "domain":
			cfg.Domain = value
		case setting == "store=away":
			limits.Store = away{}
		case setting == "mode=shadow":
			limits.Shadow = true
		case setting == "mode=strict":
			limits.Strict = true
		default:
			t.Fatalf("unknown setting %q", setting)
		}
	}
	active := ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{Networks: rules.Networks})
	policies := authz.NewPolicies(rules.Policies, active, cfg.Headers)
	cfg.Policies = func() *authz.Policies { return policies }
	return decider{authz.New(cfg), ratelimit.New(limits)}
}

// away is a store that fails each decision.
type away struct{}

func (away) Start(_ context.Context, _ []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	for i := range outcomes {
		outcomes[i].Err = errors.New("the store is unreachable")
	}
}

// testKeys are the keys of the cases, named by their kinds.
func testKeys(t testing.TB) *apikey.Keys {
	t.Helper()
	secret, err := apikey.NewSecret("a server secret for tests only", "")
	if err != nil {
		t.Fatal(err)
	}
	source := new(apikey.Source)
	minute := descriptors.Minute
	records := []apikey.Record{
		{ID: "ann", Owner: "ann", Plan: "pro", Scopes: []string{"read", "write"}, Labels: map[string]string{"team": "red"}},
		{ID: "bob", Owner: "bob", Scopes: []string{"read"}},
		{ID: "big", Owner: "big", Plan: "gold", Limit: &ratelimit.LimitSpec{Requests: 100, Unit: minute}},
		{ID: "small", Owner: "small", Limit: &ratelimit.LimitSpec{Requests: 1, Unit: minute}},
		{ID: "old", Owner: "old", Expires: now.Add(-time.Hour)},
		{ID: "new", Owner: "new", NotBefore: now.Add(time.Hour)},
		{ID: "off", Owner: "off", Disabled: true},
	}
	for i := range records {
		records[i].Weak = true
		records[i].Hash = secret.Hash("key-of-" + records[i].ID)
	}
	source.Replace(records)
	return apikey.New(apikey.Config{
		Secret: secret, Sources: []*apikey.Source{source}, Now: func() time.Time { return now },
	})
}

func parseRequest(t *testing.T, text string) *authz.Request {
	t.Helper()
	words := strings.Fields(text)
	r := &authz.Request{
		HTTP: true, Method: words[0], Path: words[1], Host: "shop.example", Source: "192.0.2.1", MaxHold: time.Minute,
	}
	for _, w := range words[2:] {
		w = strings.NewReplacer("~", " ", "^", "\t").Replace(w)
		if name, value, ok := strings.Cut(w, ":"); ok && !strings.Contains(name, "=") {
			r.AddHeader(name, value)
			continue
		}
		name, value, _ := strings.Cut(w, "=")
		switch {
		case name == "tcp":
			*r = authz.Request{Source: r.Source, Principal: r.Principal, MaxHold: r.MaxHold}
		case name == "nohold":
			r.MaxHold = 0
		case name == "quota":
			r.Quota = map[string]authz.QuotaReading{"always": authz.QuotaAlways, "never": authz.QuotaNever}[value]
		case name == "host":
			r.Host = value
		case name == "source":
			r.Source = value
		case name == "principal":
			r.Principal = value
		case strings.HasPrefix(name, "ext."):
			r.AddExtension(name[4:], value)
		case strings.HasPrefix(name, "meta."):
			namespace, key, _ := strings.Cut(name[5:], ".")
			r.Metadata = metadata(t, namespace, map[string]any{key: value})
		case name == "headers":
			for i := range number(t, value) {
				r.AddHeader(fmt.Sprint("x-", i), "")
			}
		case name == "extensions":
			for i := range number(t, value) {
				r.AddExtension(fmt.Sprint(i), "")
			}
		case name == "values":
			r.Metadata = metadata(t, "n", map[string]any{"a": make([]any, number(t, value)-1)})
		default:
			t.Fatalf("unknown word %q", w)
		}
	}
	return r
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// metadata returns the fields of a namespace as Envoy sends them.
func metadata(t *testing.T, namespace string, fields map[string]any) authz.RequestMetadata {
	t.Helper()
	wrap := func(number uint64, fields []byte) []byte {
		return wire.AppendText(nil, number<<3|wire.Bytes, string(fields))
	}
	entry := wrap(1, []byte(namespace))
	entry = append(entry, wrap(2, wire.AppendFields(nil, fields))...)
	m := new(auth.Message)
	if err := m.Unmarshal(string(wrap(1, wrap(11, wrap(1, entry))))); err != nil {
		t.Fatal(err)
	}
	return m.Request.Metadata
}

// TestDecisionsAreCounted: each request is counted by its domain and the reason of its decision.
func TestDecisionsAreCounted(t *testing.T) {
	a := newAuthorizer(t, []file.File{{Name: "a.yaml", Content: []byte(`
domain: shop
authz:
  anonymous: allow
  access: [{path: {exact: /new}, require: denied, enforce: {percent: 50, by: remote_address}}]
  limits: [{actions: [{remote_address: }]}]
`)}}, "")
	for _, ask := range []string{
		"GET /", "GET / headers=1025", "GET / extensions=1025", "GET //",
		"GET /new source=10.0.0.1", "GET /new source=10.0.0.2",
	} {
		a.decide(t.Context(), parseRequest(t, ask))
	}
	got := map[string]uint64{}
	a.EachDecision(func(domain string, reason reply.Reason, n uint64) {
		if n > 0 {
			got[domain+" "+string(reason)] = n
		}
	})
	want := map[string]uint64{
		"shop anonymous": 1, "shop too_large": 2, "shop path": 1, "shop denied": 1, "shop shadow_denied": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// always are headers that are removed from each request. runCase checks them, and cases leave them out.
var always = []string{
	"ratelimit", "ratelimit-policy", "x-envoy-auth-failure-mode-allowed", "x-envoy-auth-partial-body",
	"x-original-url", "x-rewrite-url", "x-http-method", "x-method-override",
	"x-original-uri", "x-rewrite-uri", "x-override-url", "x-http-path-override", "x-forwarded-uri", "x-forwarded-path",
	"x-script-name", "x-forwarded-server", "x-original-method", "x-forwarded-method", "x-original-path",
	"x-ms-original-url", "x-waws-unencoded-url", "x-invoke-path", "x-matched-path", "x-request-uri",
	"x-envoy-original-method", "x-middleware-subrequest",
}

// unlessKept are headers that a policy can keep. Cases leave them out, and list those that a request keeps after
// `kept`.
var unlessKept = []string{
	"x-forwarded-prefix", "forwarded", "x-forwarded-host", "x-original-host", "x-host", "x-http-host-override",
	"x-http-method-override", "x-path", "x-uri",
}

// describe returns the part of a decision for a section. The first section is the verdict.
func describe(d *authz.Decision, section string, k int) string {
	var words []string
	add := func(list []reply.Header) {
		for _, h := range list {
			words = append(words, h.Name+"="+strings.ReplaceAll(h.Value, " ", "~"))
		}
	}
	kind, _, _ := strings.Cut(section, " ")
	if k == 0 {
		kind = map[authz.Verdict]string{
			authz.Allowed: "allowed", authz.Refused: "refused", authz.Undecided: "undecided", authz.Answered: "answered",
		}[d.Verdict]
		if d.Status != 0 {
			words = append(words, fmt.Sprint(d.Status))
		}
		words = append(words, string(d.Reason))
		if strings.Contains(section, "owner=") {
			words = append(words, "owner="+d.Identity.Owner)
		}
	}
	switch kind {
	case "up":
		add(d.ToUpstream)
	case "remove":
		for _, name := range d.Remove {
			if !slices.Contains(always, name) && !slices.Contains(unlessKept, name) {
				words = append(words, name)
			}
		}
		for _, q := range d.RemoveQuery {
			words = append(words, "?"+q)
		}
		slices.Sort(words)
	case "kept":
		for _, name := range unlessKept {
			if !slices.Contains(d.Remove, name) {
				words = append(words, name)
			}
		}
	case "hold":
		words = append(words, time.Duration(d.Delay*1000).String())
	case "shadow":
		if d.ShadowDenied != "" {
			words = append(words, d.ShadowDenied)
		}
	case "client":
		add(d.ToClient)
	case "body":
		words = append(words, string(d.Body))
	case "limit":
		if d.Limits != nil {
			for i := range d.Limits.Limits {
				words = append(words, fmt.Sprint(d.Limits.Limits[i].Decision.Remaining))
			}
		}
	}
	return strings.Join(append([]string{kind}, words...), " ")
}

// TestFailuresAreCounted: requests without a valid credential are counted by reason and by answer.
func TestFailuresAreCounted(t *testing.T) {
	a := newAuthorizer(t, []file.File{{Name: "a.yaml", Content: []byte(`
domain: shop
descriptors: [{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 5}}]
authz:
  credentials: [{api_key: {header: x-api-key}}]
  access:
    - {path: {exact: /open}, require: open}
    - {path: {exact: /denied}, require: denied}
    - {path: {exact: /write}, scopes: [write]}
  refused: [{actions: [{remote_address: }]}]
`)}}, "")
	for _, ask := range []string{
		"GET /", "GET / x-api-key:wrong",
		"GET / x-api-key:key-of-old", "GET / x-api-key:key-of-new", "GET / x-api-key:key-of-off",
		"GET /", "GET / x-api-key:wrong", "GET / x-api-key:wrong", // limited
		"GET /open", "GET /open x-api-key:wrong", "GET /open x-api-key:key-of-ann",
		"GET / x-api-key:key-of-ann", "GET /write x-api-key:key-of-bob", "GET /denied x-api-key:wrong", "GET //",
	} {
		a.decide(t.Context(), parseRequest(t, ask))
	}
	got := map[string]uint64{}
	a.EachFailure(func(reason reply.Reason, answer authz.FailureAnswer, n uint64) {
		if n > 0 {
			got[string(reason)+" "+string(answer)] = n
		}
	})
	want := map[string]uint64{
		"absent refused": 1, "invalid refused": 1, "expired refused": 1, "not_yet refused": 1, "disabled refused": 1,
		"absent limited": 1, "invalid limited": 2, "invalid passed": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestReload: the policy and the rules of the same files decide a request, also during a reload. The descriptors of one
// policy would not match the rules of another, and a request without a matching rule passes.
func TestReload(t *testing.T) {
	load := func(key string) *authz.Policies {
		rules, problems := file.Parse([]file.File{{Name: "a.yaml", Content: []byte("domain: shop\n" +
			"descriptors: [{key: " + key + ", rate_limit: {unit: hour, requests_per_unit: 0}}]\n" +
			"authz: {anonymous: allow, limits: [{actions: [{generic_key: {key: " + key + ", value: x}}]}]}\n")}}, file.Config{})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return authz.NewPolicies(rules.Policies, ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{}), reply.Headers{})
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var active atomic.Pointer[authz.Policies]
	limiter := ratelimit.New(ratelimit.Config{Store: store, Fallback: store})
	a := decider{authz.New(authz.Config{Policies: active.Load}), limiter}
	for _, keys := range [][2]string{{"before", "after"}, {"after", "before"}} {
		active.Store(load(keys[0]))
		request := &authz.Request{HTTP: true, Method: "GET", Path: "/"}
		pending := new(authz.Pending)
		a.Begin(t.Context(), request, pending)
		active.Store(load(keys[1]))
		results := make([]ratelimit.Result, 1)
		limiter.DecideAll(t.Context(), []ratelimit.Query{pending.Query}, results)
		if a.Finish(pending, &results[0]); pending.Decision.Verdict == authz.Allowed {
			t.Errorf("%s, and then %s: allowed, want refused", keys[0], keys[1])
		}
	}
}

// TestUntrustedHops: a request without x-forwarded-for is reported differently from one whose list does not end with
// the peer, because the remedies differ.
func TestUntrustedHops(t *testing.T) {
	rules, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte("domain: d\ndescriptors: []\n" +
		"authz: {anonymous: allow, limits: [{actions: [{remote_address: {trusted_hops: 1}}]}]}\n")}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var got []authz.UntrustedHops
	policies := authz.NewPolicies(rules.Policies, ratelimit.NewRules(nil, ratelimit.RulesOptions{}), reply.Headers{})
	a := decider{authz.New(authz.Config{
		Policies:        func() *authz.Policies { return policies },
		OnUntrustedHops: func(h authz.UntrustedHops) { got = append(got, h) },
	}), ratelimit.New(ratelimit.Config{Store: store, Fallback: store})}
	for _, headers := range []authz.Headers{
		nil, {{Name: "x-forwarded-for", Value: "203.0.113.1"}}, {{Name: "x-forwarded-for", Value: "192.0.2.1"}},
	} {
		a.decide(t.Context(), &authz.Request{
			HTTP: true, Method: "GET", Path: "/", Host: "a", Source: "192.0.2.1", Headers: headers,
		})
	}
	if diff := cmp.Diff([]authz.UntrustedHops{{Domain: "d", Absent: true}, {Domain: "d"}}, got); diff != "" {
		t.Error(diff)
	}
}
