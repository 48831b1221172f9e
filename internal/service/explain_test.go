package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestExplainIsTheDecision explains random requests under random rules, half of them checks, and decides each at the
// same time. Both have the same verdict, rule, status and headers, so the explanation has changed nothing.
func TestExplainIsTheDecision(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	const requests = 50
	verdicts := map[string]int{}
	for range testenv.Steps(50, 2000) { // rule sets
		var now atomic.Int64 // the store also reads it in the background
		now.Store(1_700_000_000_000_000 + random.Int64N(1e12))
		rules := randomRules(random)
		o := openOffline(t, rules, pick(random, "", "", "", "strict"), now.Load)
		for i := range requests {
			m, message := randomMessage(t, random)
			e := o.Explain(t.Context(), m, message)
			d := o.Decide(t.Context(), m, message)
			got, want := told(e), toldOf(m, d)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, request %d: the explanation (+) is not the decision (-):\n%s\nrules:\n%s\nexplanation: %s",
					seed, i, diff, rules, asJSON(t, e))
			}
			verdicts[e.Service+" "+e.Verdict+" "+e.Reason]++
			now.Add(random.Int64N(2) * random.Int64N(3_000_000))
		}
		o.Close()
	}
	t.Log(verdicts)
	for _, seen := range []string{
		"ratelimit allowed allowed", "ratelimit refused over_limit", "ext_authz allowed allowed",
		"ext_authz refused over_limit", "ext_authz refused invalid", "ext_authz refused refused_too_often",
		"ext_authz refused denied", "ext_authz refused scope", "ext_authz allowed open",
	} {
		if verdicts[seen] == 0 {
			t.Errorf("no request was %s, so this verdict was not compared", seen)
		}
	}
}

// openOffline opens a service with rules in a file, three API keys, and a memory store with a clock.
func openOffline(t *testing.T, rules, compatibility string, clock func() int64) *service.Offline {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := settings.Read()
	if err != nil {
		t.Fatal(err)
	}
	s.Limits.Compatibility = compatibility
	o, err := service.OpenOffline(t.Context(), service.OfflineConfig{
		Config: service.Config{Settings: s, Stderr: io.Discard, Clock: clock}, Rules: []string{path},
	})
	if err != nil {
		t.Fatalf("%v\nrules:\n%s", err, rules)
	}
	o.SetKeys(map[string]apikey.Record{
		"key-of-ann": {ID: "ann", Owner: "ann", Plan: "gold", Scopes: []string{"admin"}},
		"key-of-bob": {ID: "bob", Owner: "bob", Limit: &ratelimit.LimitSpec{Requests: 2, Unit: descriptors.Second}},
		"key-of-cid": {ID: "cid", Owner: "cid", Disabled: true},
	})
	return o
}

// decision is what an explanation and a decision must have in common.
type decision struct {
	Verdict, Reason, Rule, Answer, Error string
	Status                               int
}

func told(e *inspect.Explanation) decision {
	return decision{e.Verdict, e.Reason, e.Rule, string(e.Answer), e.Error, e.Status}
}

func toldOf(m flow.Method, d *flow.Decided) decision {
	e := inspect.Explained(m, d, nil)
	return told(e)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	_ = json.Indent(&indented, b, "", " ") // no error: it is JSON
	return indented.String()
}

func pick(random *rand.Rand, words ...string) string { return words[random.IntN(len(words))] }

// randomRules returns a rule file with two levels of descriptors, and a policy of ext_authz.
func randomRules(random *rand.Rand) string {
	var b strings.Builder
	b.WriteString("domain: shop\ndescriptors:\n")
	for _, key := range []string{"tenant", "path", "owner", "address"} {
		if random.IntN(8) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  - key: %s\n", key)
		writeLimit(&b, random, "    ", key)
		if random.IntN(2) == 0 {
			fmt.Fprintf(&b, "    descriptors:\n      - key: method\n        value: %s\n", pick(random, "GET", "G*", `""`))
			writeLimit(&b, random, "        ", key+"-method")
		}
	}
	b.WriteString("  - {key: spare, rate_limit: {unlimited: true}}\nauthz:\n" +
		"  credentials: [{api_key: {header: x-api-key}}]\n")
	if random.IntN(3) == 0 {
		b.WriteString("  anonymous: allow\n")
	}
	b.WriteString("  access:\n    - {path: {prefix: /public/}, require: open}\n" +
		"    - {path: {exact: /admin}, scopes: [admin]}\n    - {path: {exact: /never}, require: denied}\n  limits:\n" +
		"    - actions: [{credential: {field: owner}}]\n    - actions: [{credential: {field: owner}}, {method: {}}]\n" +
		"  refused: [{actions: [{remote_address: {key: address}}]}]\n")
	return b.String()
}

func writeLimit(b *strings.Builder, random *rand.Rand, indent, name string) {
	algorithm := pick(random, "sliding_window", "fixed_window", "token_bucket", "leaky_bucket", "sliding_window_counter",
		"sliding_window_log")
	one := func(name string, units ...string) string {
		limit := fmt.Sprintf("{name: %s, unit: %s, requests_per_unit: %d, algorithm: %s", name, pick(random, units...),
			random.IntN(5), algorithm)
		if strings.HasSuffix(algorithm, "_bucket") && random.IntN(2) == 0 {
			limit += fmt.Sprintf(", burst: %d", 1+random.IntN(5))
		}
		if random.IntN(4) == 0 {
			limit += fmt.Sprintf(", count_denied: %t", random.IntN(2) == 0)
		}
		if algorithm == "fixed_window" && strings.Contains(limit, "unit: day") && random.IntN(2) == 0 {
			limit += ", calendar: " + pick(random, "UTC", "Asia/Kolkata", "America/Havana")
		}
		if random.IntN(4) == 0 {
			limit += ", override: {max: 3}"
		}
		return limit + "}"
	}
	switch random.IntN(5) {
	case 0:
		fmt.Fprintf(b, "%slimits:\n%s  - %s\n", indent, indent, one(name, "second", "minute"))
		algorithm = "fixed_window"
		fmt.Fprintf(b, "%s  - %s\n", indent, one(name+"-two", "hour"))
	case 1:
		fmt.Fprintf(b, "%srate_limit: %s\n%sshadow_mode: true\n", indent, one(name, "second", "minute"), indent)
	case 2:
		fmt.Fprintf(b, "%srate_limit: %s\n%squota_mode: true\n", indent, one(name, "second", "minute"), indent)
	default:
		fmt.Fprintf(b, "%srate_limit: %s\n", indent, one(name, "second", "minute", "day"))
	}
}

func randomMessage(t *testing.T, random *rand.Rand) (flow.Method, string) {
	t.Helper()
	if random.IntN(2) == 0 {
		return flow.Check, randomCheck(t, random)
	}
	r := &rlsv3.RateLimitRequest{Domain: pick(random, "shop", "shop", "shop", "shop", "shpo")}
	if random.IntN(4) == 0 {
		r.HitsAddend = random.Uint32N(4)
	}
	for range 1 + random.IntN(3) {
		d := &descriptorv3.RateLimitDescriptor{Entries: []*descriptorv3.RateLimitDescriptor_Entry{{
			Key: pick(random, "tenant", "tenant", "path", "owner", "tenat", "spare"), Value: pick(random, "a", "b"),
		}}}
		if random.IntN(3) == 0 {
			d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{
				Key: "method", Value: pick(random, "GET", "POST"),
			})
		}
		switch random.IntN(8) {
		case 0:
			d.HitsAddend = wrapperspb.UInt64(random.Uint64N(4))
		case 1:
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(random.Uint64N(3)), true
		case 2:
			d.Limit = &descriptorv3.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: random.Uint32N(4), Unit: typev3.RateLimitUnit_SECOND,
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return flow.RateLimit, marshal(t, r)
}

func randomCheck(t *testing.T, random *rand.Rand) string {
	t.Helper()
	headers := map[string]string{}
	if key := pick(random, "", "key-of-ann", "key-of-ann", "key-of-bob", "key-of-cid", "wrong"); key != "" {
		headers["x-api-key"] = key
	}
	return marshal(t, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: pick(random, "192.0.2.1", "192.0.2.2")},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: pick(random, "GET", "POST"), Host: "shop.example", Headers: headers,
			Path: pick(random, "/", "/v1/a", "/public/a", "/admin", "/never", "/a//b"),
		}},
	}})
}

func marshal(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
