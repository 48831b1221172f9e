package ratelimit_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// TestLimiter runs testdata/*.txt: rule files, and the results of requests. A case is a txtar archive of rules.yaml,
// optional settings, and requests, one on each line:
//
//	<time> <descriptor> | <descriptor> … -> ok|denied [retry <duration>] : <status> | <status> …
//
// A descriptor is key=value entries joined by ">". It may have hits=N, refund (is_negative_hits) and limit=N/unit (the
// request's). own=N/unit is the limit of a credential, hold=D how long the answer can be held. A status is ok or over
// with what remains, and the units and the number of holds of a limit with holds. It is "none" if no
// limit applies, "unlimited", or "shadow" for a denial that is not enforced. A
// line "reload" makes the rules of rules2.yaml active, or of the file that it names.
func TestLimiter(t *testing.T) {
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
			newScenario(t, archive).run(t)
		})
	}
}

// pure is Request.Decide over a map as a store, for one goroutine.
type pure struct {
	states map[string]bucket.State
	clock  func() int64
	asked  func(takes []bucket.Take) // receives the takes of each request; optional
}

func (p *pure) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	for i := range requests {
		r := &requests[i]
		if p.asked != nil {
			p.asked(r.Takes)
		}
		loaded := make([]bucket.Loaded, len(r.Takes))
		for k, t := range r.Takes {
			state := p.states[t.Key]
			loaded[k].State = state.Clone()
		}
		if r.Dry {
			r.DecideDry(p.clock(), loaded, &outcomes[i])
			continue
		}
		r.Decide(p.clock(), loaded, &outcomes[i])
		for k, t := range r.Takes {
			if loaded[k].Changed {
				p.states[strings.Clone(t.Key)] = loaded[k].State
			}
		}
	}
	done()
}

type scenario struct {
	limiter *ratelimit.Limiter
	rules   *ratelimit.Rules
	now     atomic.Int64 // the store also reads it in the background
	files   map[string]string
	options ratelimit.RulesOptions
	cfg     file.Config
}

func newScenario(t *testing.T, archive *txtar.Archive) *scenario {
	t.Helper()
	s := &scenario{files: map[string]string{}}
	for _, f := range archive.Files {
		s.files[f.Name] = string(f.Data)
	}
	store, err := memstore.New(memstore.Config{Clock: s.now.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	cfg := ratelimit.Config{Store: store, Fallback: store}
	for _, setting := range strings.Fields(s.files["settings"]) {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "max_held":
			if cfg.MaxHeld, err = strconv.ParseInt(value, 10, 64); err != nil {
				t.Fatal(err)
			}
		case "shadow":
			cfg.Shadow = true
		case "calendar_months":
			s.cfg.CalendarMonths, s.options.CalendarMonths = true, true
		case "quota":
			cfg.Quota = true
		case "stop_when_over":
			cfg.StopWhenOver = true
		case "pure":
			cfg.Store = &pure{states: map[string]bucket.State{}, clock: s.now.Load}
			cfg.Now = func() time.Time { return time.UnixMicro(s.now.Load()) }
		case "strict":
			cfg.Strict, s.options.Wildcards = true, descriptors.FileOrder
			s.cfg.DefaultAlgorithm, s.options.DefaultAlgorithm = bucket.FixedWindow, bucket.FixedWindow
		case "sliding_window_log":
			s.cfg.DefaultAlgorithm, s.options.DefaultAlgorithm = bucket.SlidingWindowLog, bucket.SlidingWindowLog
		default:
			t.Fatalf("unknown setting %q", setting)
		}
	}
	cfg.Rules = func() *ratelimit.Rules { return s.rules }
	s.limiter = ratelimit.New(cfg)
	s.load(t, "rules.yaml")
	return s
}

func (s *scenario) load(t *testing.T, name string) {
	t.Helper()
	rules, problems := file.Parse([]file.File{{Name: name, Content: []byte(s.files[name])}}, s.cfg)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	options := s.options
	options.Before = s.rules
	s.rules = ratelimit.NewRules(rules.Domains, options)
}

// begin is at the edge of a day, an hour and a minute.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *scenario) run(t *testing.T) {
	n := 0
	for i, line := range strings.Split(s.files["requests"], "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		n++
		if name, reload := strings.CutPrefix(line, "reload"); reload {
			s.load(t, cmp.Or(strings.TrimSpace(name), "rules2.yaml"))
			continue
		}
		ask, want, ok := strings.Cut(line, "->")
		if !ok {
			t.Fatalf("line %d: no ->: %s", i+1, line)
		}
		at, ask, _ := strings.Cut(strings.TrimSpace(ask), " ")
		after, err := time.ParseDuration(at)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		s.now.Store(begin.Add(after).UnixMicro())
		got := describe(decide(t, s.limiter, query(t, ask)))
		if want = strings.Join(strings.Fields(want), " "); got != want {
			t.Errorf("request %d: %s\n got %s\nwant %s", i+1, line, got, want)
		}
	}
	if n == 0 {
		t.Fatal("no requests in the case")
	}
}

func decide(t *testing.T, l *ratelimit.Limiter, q ratelimit.Query) ratelimit.Result {
	t.Helper()
	results := make([]ratelimit.Result, 1)
	l.DecideAll(t.Context(), []ratelimit.Query{q}, results)
	return results[0]
}

func query(t *testing.T, text string) ratelimit.Query {
	t.Helper()
	q := ratelimit.Query{Domain: "test"}
	for part := range strings.SplitSeq(text, "|") {
		var d descriptors.Descriptor
		for word := range strings.FieldsSeq(part) {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "hits":
				n, err := strconv.ParseUint(value, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				d.Hits = &n
			case "domain":
				q.Domain = value
			case "request_hits":
				n, err := strconv.ParseUint(value, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				q.Hits = n
			case "own":
				number, unit, _ := strings.Cut(value, "/")
				unit, algorithm, _ := strings.Cut(unit, "/")
				algorithm, burst, _ := strings.Cut(algorithm, "/")
				n, err := strconv.ParseInt(number, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				q.CredentialLimit = &ratelimit.LimitSpec{Requests: n}
				_ = q.CredentialLimit.Unit.UnmarshalText([]byte(unit))
				_ = q.CredentialLimit.Algorithm.UnmarshalText([]byte(algorithm))
				q.CredentialLimit.Burst, _ = strconv.ParseInt(burst, 10, 64)
			case "hold":
				d, err := time.ParseDuration(value)
				if err != nil {
					t.Fatal(err)
				}
				q.MaxHold = d.Microseconds()
			case "refund":
				d.Negative = true
			case "limit":
				number, unit, _ := strings.Cut(value, "/")
				n, err := strconv.ParseUint(number, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				d.Limit = &descriptors.RequestLimit{RequestsPerUnit: uint32(n)}
				_ = d.Limit.Unit.UnmarshalText([]byte(unit))
			default:
				for entry := range strings.SplitSeq(word, ">") {
					k, v, _ := strings.Cut(entry, "=")
					d.Entries = append(d.Entries, descriptors.Entry{Key: k, Value: v})
				}
			}
		}
		q.Descriptors = append(q.Descriptors, d)
	}
	return q
}

func describe(res ratelimit.Result) string {
	if res.Err != nil {
		return "error: " + res.Err.Error()
	}
	var b strings.Builder
	b.WriteString(map[bool]string{true: "ok", false: "denied"}[res.Allowed])
	switch {
	case res.RetryAfter == bucket.Never:
		b.WriteString(" retry never")
	case res.RetryAfter > 0:
		fmt.Fprintf(&b, " retry %s", time.Duration(res.RetryAfter)*time.Microsecond)
	}
	if res.Delay > 0 {
		fmt.Fprintf(&b, " hold %s", time.Duration(res.Delay)*time.Microsecond)
	}
	for i := range res.Statuses {
		b.WriteString(map[bool]string{true: " : ", false: " | "}[i == 0])
		s := &res.Statuses[i]
		switch a := s.Binding; {
		case s.Unlimited:
			b.WriteString("unlimited")
		case a == nil:
			b.WriteString("none")
		case a.Denied():
			fmt.Fprintf(&b, "over %d", a.Remaining())
		case !a.Decision.Allowed:
			fmt.Fprintf(&b, "shadow %d", a.Remaining())
		default:
			fmt.Fprintf(&b, "ok %d", a.Remaining())
		}
		if s.Binding != nil && s.Binding.Decision.Held != nil {
			fmt.Fprintf(&b, " held %d in %d", s.Binding.Decision.Held.Units, s.Binding.Decision.Held.Number)
		}
	}
	return b.String()
}

// TestShadowDenied: the status of a descriptor has the limit that would have denied the request without shadow mode,
// that of the rule, of the limit, or of the service. A quota that is over its limit would not have denied it while
// another is not.
func TestShadowDenied(t *testing.T) {
	archive := txtar.Parse([]byte(`
-- rules.yaml --
domain: test
descriptors:
  - {key: zero, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: one, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - key: beside
    limits: [{unit: hour, requests_per_unit: 9}, {name: low, unit: hour, requests_per_unit: 0, shadow_mode: true}]
  - {key: spent, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: left, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}
-- settings --
`))
	for _, c := range []struct{ settings, ask, want string }{
		{"", "one=a", ""},
		{"", "one=a | trial=a", "trial"},
		{"", "beside=a", "low"},
		{"", "other=a", ""},
		{"", "spent=a | left=a", ""},
		{"shadow", "one=a", ""},
		{"shadow", "one=a | zero=a", "zero"},
		{"shadow", "spent=a | left=a", ""},
		{"shadow", "spent=a", "spent"},
	} {
		archive.Files[1].Data = []byte(c.settings)
		res := decide(t, newScenario(t, archive).limiter, query(t, c.ask))
		got := ""
		for _, s := range res.Statuses {
			if s.ShadowDenied != nil {
				got += s.ShadowDenied.Limit.Policy
			}
		}
		if !res.Allowed || got != c.want {
			t.Errorf("%s %s: allowed %t, got the limit %q, want %q", c.settings, c.ask, res.Allowed, got, c.want)
		}
	}
}

// TestRemainingSaturates checks that a larger count becomes the largest of Envoy's counts of 32 bits.
func TestRemainingSaturates(t *testing.T) {
	a := ratelimit.Applied{Decision: bucket.Decision{Remaining: math.MaxInt64}}
	if a.Remaining() != math.MaxUint32 {
		t.Errorf("remaining %d", a.Remaining())
	}
}

// TestWindowOfADecision checks that the window of a decision is that of its time: in March 2026, Berlin has a day of 23
// hours.
func TestWindowOfADecision(t *testing.T) {
	days, err := bucket.CalendarNamed("day@Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	l := ratelimit.RuleLimit{Limit: bucket.Limit{
		Algorithm: bucket.CalendarWindow, Requests: 1, Window: 86_400_000_000, Calendar: days,
	}}
	at := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC).UnixMicro()
	never := bucket.Decision{RetryAfter: bucket.Never, ChargedAt: at}
	a := ratelimit.Applied{Limit: &l, Decision: never}
	if a.Window() != 23*3600*1_000_000 || a.Wait() != 23*3600 {
		t.Errorf("a window of %d µs, and a wait of %d s", a.Window(), a.Wait())
	}
	a.Decision.ChargedAt = 0 // no bucket has decided
	if w := a.Window(); w < 23*3600*1_000_000 || w > 25*3600*1_000_000 {
		t.Errorf("a window of %d µs today", w)
	}
}

// TestFloodOfRequestLimits checks that many limits of requests, each with another window, do not displace the buckets
// of a rule from a full store.
func TestFloodOfRequestLimits(t *testing.T) {
	store, err := memstore.New(memstore.Config{
		Clock: func() int64 { return 1_770_000_000_000_000 }, MaxBuckets: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	hourly := ratelimit.Limit{Algorithm: bucket.TokenBucket, Requests: new(int64(1)), Unit: descriptors.Hour}
	rules := ratelimit.NewRules([]ratelimit.Domain{
		{Name: "d", Descriptors: []ratelimit.Node{{Key: "client", Limits: []ratelimit.Limit{hourly}}}},
	}, ratelimit.RulesOptions{})
	limiter := ratelimit.New(ratelimit.Config{
		Rules: func() *ratelimit.Rules { return rules }, Store: store, Fallback: store,
	})
	allowed := func(d descriptors.Descriptor) bool {
		t.Helper()
		res := decide(t, limiter, ratelimit.Query{Domain: "d", Descriptors: []descriptors.Descriptor{d}})
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		return res.Allowed
	}
	client := func(i int) descriptors.Descriptor {
		return descriptors.Descriptor{Entries: []descriptors.Entry{{Key: "client", Value: strconv.Itoa(i)}}}
	}
	const clients = 300
	for i := range clients {
		allowed(client(i))
	}
	for i := range 3200 {
		d := client(i)
		d.Limit = &descriptors.RequestLimit{RequestsPerUnit: 1, Unit: descriptors.Second, UnitMultiplier: uint32(i + 1)}
		allowed(d)
	}
	for i := range clients {
		if allowed(client(i)) {
			t.Fatalf("client %d has its quota again", i)
		}
	}
}
