package replay

import (
	"fmt"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// domains reads a rule file.
func domains(t *testing.T, text string) []ratelimit.Domain {
	t.Helper()
	set, problems := file.Parse([]file.File{strictyaml.File{Name: "rules.yaml", Content: []byte(text)}}, file.Config{})
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	return set.Domains
}

// TestGenerate makes requests that use up the limit of each rule and are denied twice.
func TestGenerate(t *testing.T) {
	rules := domains(t, `domain: d
descriptors:
  - {key: few, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: many, value: "/a/*", limits: [{unit: day, requests_per_unit: 99}, {unit: minute, requests_per_unit: 10}]}
  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: pass
  - key: outer
    value: x
    descriptors: [{key: inner, rate_limit: {unit: day, requests_per_unit: 4294967295}}]
  - {key: bucket, rate_limit: {unit: second, requests_per_unit: 100, algorithm: token_bucket, burst: 1}}
`)
	var got []string
	for _, r := range Generate(rules, "w") {
		got = append(got, fmt.Sprintf("%s %d", descriptorName(r.GetDomain(), r.GetDescriptors()[0]), r.GetHitsAddend()))
	}
	want := []string{
		"d: few=w 0", "d: few=w 0", "d: few=w 0", "d: few=w 0",
		"d: many=/a/w 0", "d: many=/a/w 7", "d: many=/a/w 0", "d: many=/a/w 0", "d: many=/a/w 0", "d: many=/a/w 0",
		"d: none=w 0", "d: none=w 0",
		"d: free=w 0",
		"d: pass=w 0",
		"d: outer=x,inner=w 0", "d: outer=x,inner=w 4294967292", "d: outer=x,inner=w 0", "d: outer=x,inner=w 0",
		"d: outer=x,inner=w 0", "d: outer=x,inner=w 0",
		"d: bucket=w 0", "d: bucket=w 0", "d: bucket=w 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestGenerateIsBounded makes requests from more rules than a sample has.
func TestGenerateIsBounded(t *testing.T) {
	d := ratelimit.Domain{Name: "d", Descriptors: make([]ratelimit.Node, 2*MaxRequests)}
	if n := len(Generate([]ratelimit.Domain{d}, "w")); n != MaxRequests {
		t.Errorf("%d requests, want %d", n, MaxRequests)
	}
}

func TestRead(t *testing.T) {
	const good = `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}],"hitsAddend":2}`
	for _, c := range []struct {
		name, text, want string
	}{
		{"two", good + "\n\n  " + good + "\r\n", ""},
		{"empty", "\n", "f has no requests"},
		{"no JSON", good + "\nx\n", "f:2: no RateLimitRequest in JSON: "},
		{"unknown field", `{"domian":"d"}`, "f:1: no RateLimitRequest in JSON: "},
		{"a list", `[]`, "f:1: no RateLimitRequest in JSON: "},
		{"no domain", `{"descriptors":[{}]}`, "f:1: a request needs `domain` and `descriptors`"},
		{"no descriptors", `{"domain":"d"}`, "f:1: a request needs `domain` and `descriptors`"},
		{"a long line", good + "\n" + strings.Repeat(" ", maxLine+1), "f: a line has more than 1048576 bytes"},
		{"many", strings.Repeat(good+"\n", MaxRequests+1), "f:10001: more than 10000 requests"},
	} {
		requests, err := Read("f", strings.NewReader(c.text))
		if c.want == "" && (err != nil || len(requests) != 2) {
			t.Errorf("%s: %d requests, %v", c.name, len(requests), err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	for _, c := range []struct {
		address string
		remote  bool
		want    string
	}{
		{"127.0.0.1:8081", false, ""},
		{"127.1.2.3:8081", false, ""},
		{"localhost:8081", false, ""},
		{"[::1]:8081", false, ""},
		{"[::ffff:127.0.0.1]:8081", false, ""},
		{"unix:/run/x.sock", false, ""},
		{"ratelimit:8081", true, ""},
		{"192.0.2.1:8081", true, ""},
		{"ratelimit:8081", false, "is not on this machine"},
		{"192.0.2.1:8081", false, "is not on this machine"},
		{"0.0.0.0:8081", false, "is not on this machine"},
		{"localhost.example.org:8081", false, "is not on this machine"},
		{"127.0.0.1", false, "want host:port"},
		{":8081", true, "want host:port"},
		{"127.0.0.1:", true, "want host:port"},
		{"unix:", true, "want unix:PATH"},
		{"http://127.0.0.1:8081", true, "want host:port"},
	} {
		err := CheckAddress(c.address, c.remote)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.address, err, c.want)
		}
	}
}

// TestJudge compares answers: each step is a request, the two answers, and the differences with their rows.
func TestJudge(t *testing.T) {
	const (
		one  = `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`
		wild = `{"domain":"d","descriptors":[{"entries":[{"key":"p","value":"/a/b/c"}]}]}`
		peek = `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}],"hitsAddend":"0"}]}`
		own  = `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}],"limit":{"unit":"DAY"}}]}`
		five = `{"domain":"d","hitsAddend":5,"descriptors":[{"entries":[{"key":"a","value":"1"}]}]}`
		two  = `{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]},{"entries":[{"key":"b","value":"2"}]}]}`
	)
	const rules = `domain: d
descriptors:
  - {key: p, value: /a/*, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: p, value: /a/b/*, rate_limit: {unit: hour, requests_per_unit: 3}}
`
	ok := func(remaining, reset int) string { return answerText("OK", remaining, reset) }
	over := func(remaining, reset int) string { return answerText("OVER_LIMIT", remaining, reset) }
	type step struct{ request, older, newer, want string }
	for _, c := range []struct {
		name   string
		strict bool
		steps  []step
	}{
		{"equal", false, []step{{one, ok(4, 30), ok(4, 30), ""}, {one, over(0, 30), over(0, 29), ""}}},
		{"the reset of another algorithm", false, []step{{one, ok(4, 30), ok(4, 60),
			"reset: 30 s, 60 s (1. a rule without an algorithm)"}}},
		{"strict: no difference is listed", true, []step{{one, ok(4, 30), ok(3, 60),
			"remaining: 4, 3 ()\nreset: 30 s, 60 s ()"}}},
		{"remaining", false, []step{{one, ok(4, 30), ok(3, 30), "remaining: 4, 3 ()"}}},
		{"a verdict", false, []step{{one, ok(4, 30), over(0, 30),
			"code: OK, OVER_LIMIT ()\nremaining: 4, 0 ()\nverdict: OK, OVER_LIMIT ()"}}},
		{"the answer to a denial", false, []step{{five, over(0, 30), over(3, 12),
			"remaining: 0, 3 (`limit_remaining` on a denial)\nreset: 30 s, 12 s (`duration_until_reset` of a denied " +
				"descriptor)"}}},
		{"hits of a denied request", false, []step{
			{five, over(0, 30), over(3, 30), "remaining: 0, 3 (`limit_remaining` on a denial)"},
			{one, over(0, 30), ok(2, 30), "code: OVER_LIMIT, OK (2. a denied request)\nremaining: 0, 2 (2. a denied " +
				"request)\nverdict: OVER_LIMIT, OK (2. a denied request)"},
		}},
		{"another descriptor denies the request", false, []step{{two, twoText(99, 30), twoText(100, 30),
			"remaining: 99, 100 (2. a denied request)"}}},
		{"a limit in the request", false, []step{
			{own, ok(4, 30), ok(4, 30), ""},
			{one, ok(3, 30), ok(4, 30), "remaining: 3, 4 (the count of a limit in the request)"},
		}},
		{"strict: a limit in the request counts in the same bucket", true, []step{
			{own, ok(4, 30), ok(4, 30), ""},
			{one, ok(3, 30), ok(4, 30), "remaining: 3, 4 ()"},
		}},
		{"a denial of one hit explains nothing", false, []step{
			{one, over(0, 30), over(0, 30), ""},
			{one, over(0, 30), ok(2, 30), "code: OVER_LIMIT, OK ()\nremaining: 0, 2 ()\nverdict: OVER_LIMIT, OK ()"},
		}},
		{"a peek", false, []step{{peek, ok(0, 30), over(0, 30),
			"code: OK, OVER_LIMIT (3. a peek (`hits_addend: 0`) if nothing is left)\n" +
				"verdict: OK, OVER_LIMIT (3. a peek (`hits_addend: 0`) if nothing is left)"}}},
		{"wildcards", false, []step{{wild, ok(8, 30), ok(2, 30), "remaining: 8, 2 (4. several wildcards match)"}}},
		{"the window ends", false, []step{
			{one, ok(4, 1), ok(4, 1), ""},
			{one, ok(4, 60), ok(3, 59), "remaining: 4, 3 (1. a rule without an algorithm)"},
		}},
		{"an error on both sides", false, []step{{one, "error 2", "error 2", ""}}},
		{"an error on one side", false, []step{{one, "error 2", ok(4, 30), "verdict: error Unknown, OK ()"}}},
		{"no statuses", false, []step{{two, `{"overallCode":"OK"}`, `{"overallCode":"OVER_LIMIT","statuses":[{},{}]}`,
			"verdict: OK, OVER_LIMIT ()"}, {two, `{"overallCode":"OK"}`, `{"overallCode":"OK","statuses":[{},{}]}`, ""}}},
		{"no limit", false, []step{{one, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`, ok(4, 30),
			"limit: none, 5 per minute ()\nremaining: 0, 4 ()\nreset: 0 s, 30 s (1. a rule without an algorithm)"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJudge(Config{Domains: domains(t, rules), Strict: c.strict})
			for i, s := range c.steps {
				r := new(Request)
				if err := protojson.Unmarshal([]byte(s.request), r); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, d := range j.compare(i+1, r, parse(t, s.older), parse(t, s.newer)) {
					got = append(got, fmt.Sprintf("%s: %s, %s (%s)", d.What, d.Old, d.New, d.Row))
				}
				if diff := cmp.Diff(s.want, strings.Join(got, "\n")); diff != "" {
					t.Errorf("request %d (-want +got):\n%s", i+1, diff)
				}
			}
		})
	}
}

func answerText(code string, remaining, reset int) string {
	return fmt.Sprintf(`{"overallCode":%q,"statuses":[{"code":%q,"currentLimit":{"requestsPerUnit":5,"unit":"MINUTE"},`+
		`"limitRemaining":%d,"durationUntilReset":"%ds"}]}`, code, code, remaining, reset)
}

// twoText is the answer to two descriptors, of which the second one is over its limit.
func twoText(remaining, reset int) string {
	const limit = `"currentLimit":{"requestsPerUnit":100,"unit":"MINUTE"}`
	return fmt.Sprintf(`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OK",%s,"limitRemaining":%d,`+
		`"durationUntilReset":"%ds"},{"code":"OVER_LIMIT",%s,"durationUntilReset":"%ds"}]}`, limit, remaining, reset,
		limit, reset)
}

func parse(t *testing.T, text string) answer {
	t.Helper()
	if code, ok := strings.CutPrefix(text, "error "); ok {
		return answer{code: codes.Code(code[0] - '0')}
	}
	response := new(ratelimitv3.RateLimitResponse)
	if err := protojson.Unmarshal([]byte(text), response); err != nil {
		t.Fatal(err)
	}
	return answer{RateLimitResponse: response}
}

// TestDescriptorName quotes what could be mistaken or changes a terminal.
func TestDescriptorName(t *testing.T) {
	d := &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
		{Key: "a", Value: "x,b=y"}, {Key: "esc", Value: "\x1b[2J"}, {Key: "c", Value: ""},
	}}
	limited := &commonv3.RateLimitDescriptor{Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 4}}
	if got, want := descriptorName("d", limited), "d:  with limit 4 per unknown"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := descriptorName("d", d), `d: a="x,b=y",esc="\x1b[2J",c=`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
