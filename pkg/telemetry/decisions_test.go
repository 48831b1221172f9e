package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/cases"
	"github.com/extauthz/extauthz/test/testenv/tokens"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with the current results")

// TestDecisionLog compares the log of requests to both services with testdata/decisions.txtar, at INFO and DEBUG, as
// text and as JSON, and with the values of clients.
func TestDecisionLog(t *testing.T) {
	const path = "testdata/decisions.txtar"
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	withLevel := func(level slog.Level) *slog.HandlerOptions { return &slog.HandlerOptions{Level: level} }
	for _, c := range []struct {
		name    string
		handler slog.Handler
		values  ratelimit.ClientValues
	}{
		{"info", slog.NewTextHandler(&lines, withLevel(slog.LevelInfo)), ratelimit.HideValues},
		{"debug", slog.NewTextHandler(&lines, withLevel(slog.LevelDebug)), ratelimit.HideValues},
		{"clients", slog.NewTextHandler(&lines, withLevel(slog.LevelInfo)), ratelimit.ShowValues},
		{"values", slog.NewJSONHandler(&lines, withLevel(slog.LevelDebug)), ratelimit.ShowValues},
	} {
		lines.Reset()
		s := newServices(t, archive, slog.New(c.handler), c.values)
		for line := range strings.Lines(string(fileOf(t, archive, "requests"))) {
			s.send(t, strings.Fields(line))
		}
		got := lines.String()
		for _, varying := range []struct{ from, to string }{
			{`time=\S+ `, ""}, {`"time":"[^"]+",`, ""}, {`took=\S+`, "took=N"}, {`"took":\d+`, `"took":0`},
			{`retry_after(=|":)\d+`, `retry_after${1}0`},
		} {
			got = regexp.MustCompile(varying.from).ReplaceAllString(got, varying.to)
		}
		if strings.Contains(got, "s3cret") {
			t.Errorf("a secret is in the log:\n%s", got)
		}
		if *update {
			cases.Set(archive, "requests", "want."+c.name, got)
			cases.Write(t, path, archive)
			continue
		}
		cases.Check(t, archive, "want."+c.name, nil, got)
	}
}

// TestDecisionFields: the table of docs/reference/log.md has each field that the log of the cases has, and no other.
func TestDecisionFields(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/decisions.txtar")
	if err != nil {
		t.Fatal(err)
	}
	// Lines of other tests have these.
	logged := map[string]bool{"left_out": true, "delay": true, "dropped_headers": true, "plan": true, "time": true}
	for line := range strings.Lines(string(fileOf(t, archive, "want.values"))) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		descriptors, _ := record["descriptors"].(map[string]any)
		for _, d := range descriptors {
			for name := range d.(map[string]any) {
				logged[name] = true
			}
		}
		for name := range record {
			logged[name] = true
		}
	}
	_, section, _ := strings.Cut(testenv.RepoFile(t, "docs/reference/log.md"), "\n## Fields\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`\\w+`(?:, )?)+) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(row[1], -1) {
			documented[name] = true
		}
	}
	for _, standard := range []string{"level", "msg"} {
		delete(logged, standard)
	}
	for _, name := range slices.Sorted(maps.Keys(logged)) {
		if !documented[name] {
			t.Errorf("docs/reference/log.md does not have the field %s", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/reference/log.md has the field %s, which no line has", name)
	}
}

// TestDenialsAreBounded: of a flood of denials, a second has ten lines for each limit, also if the rules are loaded
// again. The number of the others is in the log a second later, or at the end, and none is lost. Denials in shadow are
// bounded and counted by themselves.
func TestDenialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, read := new(testenv.Output), 0
		set, problems := file.Parse([]file.File{{Name: "shop.yaml", Content: []byte(`
domain: shop
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 0}}
  - key: c
    limits: [{unit: hour, requests_per_unit: 0}, {name: s, unit: hour, requests_per_unit: 0, shadow_mode: true}]
`)}}, file.Config{})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		rules := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
		log := telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
			Log:   slog.New(slog.NewTextHandler(lines, nil)),
			Rules: func() *ratelimit.Rules { return rules },
		})
		deny := func(rule, times int) {
			res := ratelimit.Result{Statuses: []ratelimit.Status{{
				Rule: rules.All()[rule], Binding: &ratelimit.Applied{Limit: &rules.All()[rule].Limits[0]},
			}}}
			for range times {
				log.RateLimit(&ratelimit.Query{Domain: "shop"}, &res)
			}
		}
		shadow := func(times int) {
			limits := rules.All()[2].Limits
			res := ratelimit.Result{Allowed: true, Statuses: []ratelimit.Status{{
				Rule: rules.All()[2], Binding: &ratelimit.Applied{Limit: &limits[0], Decision: bucket.Decision{Allowed: true}},
				ShadowDenied: &ratelimit.Applied{Limit: &limits[1], Shadow: true},
			}}}
			for range times {
				log.RateLimit(&ratelimit.Query{Domain: "shop"}, &res)
			}
		}
		count := func(limit string, decided int, leftOut string) {
			t.Helper()
			got := lines.String()[read:]
			about := map[string]string{
				"a": "verdict=refused reason=over_limit domain=shop rule=a at=shop.yaml:4 limit=a ",
				"b": "verdict=refused reason=over_limit domain=shop rule=b at=shop.yaml:5 limit=b ",
				"c": "verdict=refused reason=over_limit domain=shop rule=c at=shop.yaml:6 limit=c ",
				"s": "verdict=allowed reason=shadow_denied domain=shop rule=c at=shop.yaml:6 limit=s ",
			}[limit]
			if n := strings.Count(got, "msg=decided service=ratelimit "+about); n != decided {
				t.Errorf("%d lines of limit %s, want %d:\n%s", n, limit, decided, got)
			}
			want := about + "left_out=" + leftOut + "\n"
			if has := strings.Contains(got, want); has != (leftOut != "") {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		deny(0, 1000)
		deny(1, 5)
		shadow(1000)
		deny(2, 20)
		count("a", 10, "")
		count("b", 5, "")
		count("s", 10, "")
		count("c", 10, "")
		rules = ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{Before: rules}) // a rule keeps its bound
		deny(0, 10)
		count("a", 10, "")
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		count("a", 10, "1000")
		count("s", 10, "990")
		count("c", 10, "10")
		read = len(lines.String())
		deny(1, 12)
		log.Flush()
		count("b", 10, "2")
		read = len(lines.String())
		time.Sleep(time.Minute)
		synctest.Wait()
		log.Flush()
		if got := lines.String()[read:]; got != "" {
			t.Errorf("without a denial, the log has %s", got)
		}
	})
}

// TestCheckIsOneLine: a decision has one line of bounded length without any possible credential.
func TestCheckIsOneLine(t *testing.T) {
	var lines bytes.Buffer
	log := telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
		Log:    slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Values: ratelimit.ShowValues,
	})
	log.Check(&authz.Checked{
		Request: &authz.Request{
			HTTP: true, Method: "GET", Host: "example.org\nlevel=ERROR",
			Path: "/" + strings.Repeat("p", 1000) + "?api_key=s3cret",
			Headers: authz.Headers{
				{Name: "authorization", Value: "Bearer s3cret"}, {Name: "x-api-key", Value: "s3cret"},
				{Name: "x-request-id", Value: "r-1"},
			},
		},
		Decision: &authz.Decision{
			Reason: reply.ReasonInvalid, Status: 403, Domain: "shop", Identity: credential.Identity{KeyID: "k-17"}, Delay: 1000,
		},
		Status: 403, DroppedHeaders: 1,
	})
	got := lines.String()
	if strings.Contains(got, "s3cret") || strings.Count(got, "\n") != 1 || len(got) > 1000 {
		t.Errorf("got %q", got)
	}
	if strings.Contains(got, `\n`) { // a terminal would show what follows in a line of its own
		t.Errorf("a quoted line break is in %q", got)
	}
	words := strings.Fields(got)
	for _, want := range []string{
		"msg=decided", "verdict=refused", "reason=invalid", "status=403", "domain=shop", "key_id=k-17", "request_id=r-1",
		"dropped_headers=1", "delay=1ms",
	} {
		if !slices.Contains(words, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
}

// services are both services, with one log.
type services struct {
	flow *flow.Flow
	key  tokens.Key // of the issuer
}

// now is the time of the tokens and buckets.
var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newServices(t *testing.T, archive *txtar.Archive, log *slog.Logger, values ratelimit.ClientValues) *services {
	t.Helper()
	s := &services{key: tokens.ES256(t, "key-1")}
	jwksFile := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(jwksFile, s.key.Set(t), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(fileOf(t, archive, "shop.yaml")), "JWKS", jwksFile)
	set, problems := file.Parse([]file.File{{Name: "shop.yaml", Content: []byte(text)}}, file.Config{})
	if problems.HasErrors() {
		t.Fatal(problems.Err())
	}
	memory, err := memstore.New(memstore.Config{Clock: now.UnixMicro})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	rules := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
	limiter := ratelimit.New(ratelimit.Config{
		Rules: func() *ratelimit.Rules { return rules }, Store: failing{memory}, Fallback: memory,
	})
	policies := authz.NewPolicies(set.Policies, rules, reply.Headers{})
	verifier := jwt.New(jwt.Config{Now: func() time.Time { return now }})
	t.Cleanup(verifier.Close)
	verifier.SetIssuers(authz.CredentialsOf[*jwt.Credential](policies))
	testenv.Eventually(t, func() error {
		if n := verifier.Sources()[0].Keys; n != 1 {
			return fmt.Errorf("there are %d keys of the issuer", n)
		}
		return nil
	}, "the key of the issuer to be read")
	secret, err := apikey.NewSecret("a server secret for tests only", "")
	if err != nil {
		t.Fatal(err)
	}
	decisions := telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
		Log: log, Rules: func() *ratelimit.Rules { return rules }, Values: values,
	})
	s.flow = flow.New(flow.Config{
		Authorizer: authz.New(authz.Config{
			Policies: func() *authz.Policies { return policies }, Checkers: map[string]credential.Checker{
				jwt.Name: verifier, apikey.Name: apikey.New(apikey.Config{Secret: secret}),
			},
		}),
		Limiter: limiter, Queue: flow.NewQueue(10), Log: decisions, Calls: telemetry.NewCalls(prometheus.NewRegistry()),
		HTTP: flow.HTTPConfig{
			Headers: auth.HTTPHeaders{Source: "x-source"}, Timeout: time.Minute,
			NeedsAddress: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
		},
		Panicked: func(where string, value any) { t.Errorf("a panic in %s: %v", where, value) },
	})
	return s
}

// failing is a store that cannot decide rules whose key is down.
type failing struct{ *memstore.Store }

func (f failing) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	ratelimit.Take(ctx, f.Store, requests, outcomes)
	for i := range requests {
		if strings.Contains(requests[i].Takes[0].Key, "down") {
			outcomes[i].Err = errors.New("the store of the test does not decide")
		}
	}
}

// send sends a request of the cases.
func (s *services) send(t *testing.T, words []string) {
	t.Helper()
	if words[0] == "check" || words[0] == "quota" {
		prefix, serve := auth.HTTPPath, s.flow.Checks(nil).ServeHTTP
		if words[0] == "quota" {
			prefix, serve = "", s.flow.ServeQuota
		}
		r := httptest.NewRequestWithContext(t.Context(), words[1], prefix+words[2], nil)
		r.Header.Set("x-source", "192.0.2.1")
		for _, word := range words[3:] {
			name, value, _ := strings.Cut(word, ":")
			switch name {
			case "host":
				r.Host = value
			case "bearer":
				r.Header.Set("authorization", "Bearer "+s.token(t, value))
			default:
				r.Header.Set(name, value)
			}
		}
		serve(httptest.NewRecorder(), r)
		return
	}
	m := &rlsv3.RateLimitRequest{Domain: words[0]}
	d := new(ratelimitcommon.RateLimitDescriptor)
	for _, word := range append(words[1:], "|") {
		if word == "|" {
			if len(d.GetEntries()) > 0 {
				m.Descriptors = append(m.Descriptors, d)
			}
			d = new(ratelimitcommon.RateLimitDescriptor)
			continue
		}
		for pair := range strings.SplitSeq(word, ",") {
			key, value, _ := strings.Cut(pair, "=")
			if key == "limit" {
				d.Limit = &ratelimitcommon.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_MINUTE,
				}
				continue
			}
			d.Entries = append(d.Entries, &ratelimitcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	message, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.flow.Answer(t.Context(), flow.RateLimit, string(message), http.Header{}) // an error is in the log, too
}

// token returns a token that is refused for a cause; "" for a good one.
func (s *services) token(t *testing.T, cause string) string {
	t.Helper()
	claims := map[string]any{
		"iss": "https://issuer.example", "aud": "shop", "sub": "ann", "exp": now.Add(time.Hour).Unix(),
	}
	key := s.key
	switch cause {
	case "audience":
		claims["aud"] = "s3cret"
	case "issuer":
		claims["iss"] = "https://other.example"
	case "subject":
		delete(claims, "sub")
	case "expired":
		claims["exp"] = now.Add(-time.Hour).Unix()
	case "not_yet":
		claims["nbf"] = now.Add(time.Hour).Unix()
	case "signature":
		key = tokens.ES256(t, key.ID)
	case "unknown_key":
		key.ID = "s3cret"
	case "malformed":
		return "s3cret"
	}
	return key.Claims(t, claims)
}

func fileOf(t *testing.T, archive *txtar.Archive, name string) []byte {
	t.Helper()
	for _, f := range archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	t.Fatal(fmt.Errorf("the archive has no %s", name))
	return nil
}
