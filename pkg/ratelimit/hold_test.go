package ratelimit_test

import (
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

func holding(t *testing.T) *scenario {
	t.Helper()
	s := newScenario(t, txtar.Parse([]byte(`
-- rules.yaml --
domain: test
descriptors:
  - {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 1, hold: {ttl: 20s}}}
  - {key: team, rate_limit: {unit: minute, requests_per_unit: 10, algorithm: fixed_window, hold: {ttl: 20s}}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 10}}
-- settings --
pure
`)))
	s.now.Store(begin.UnixMicro())
	return s
}

func (s *scenario) counted(t *testing.T, rule string) *ratelimit.RuleLimit {
	t.Helper()
	for _, r := range s.rules.All() {
		if r.Name == rule {
			return &r.Limits[0]
		}
	}
	t.Fatal(rule)
	return nil
}

// TestHoldsAreCounted checks the counters of holds: two descriptors of one bucket are counted once. A settlement is no
// decision on its limit.
func TestHoldsAreCounted(t *testing.T) {
	t.Parallel()
	s := holding(t)
	for _, ask := range []string{
		"team=a>hold.reserve=1 hits=4", "team=a>hold.reserve=2 hits=4", "team=a>hold.reserve=3 hits=4",
		"team=a>hold.settle=1 hits=40 | team=a>hold.settle=1 hits=0", "team=a>hold.settle=1",
	} {
		decide(t, s.limiter, query(t, ask))
	}
	s.now.Add(20_000_000)
	decide(t, s.limiter, query(t, "team=a | plain=b"))
	c := s.counted(t, "team").Counters
	got := []uint64{c.Settled.Load(), c.Unknown.Load(), c.Expired.Load(), c.Allowed.Descriptors(), c.Allowed.Hits(),
		c.Denied.Descriptors()}
	if want := []uint64{1, 1, 1, 2, 8, 2}; !slices.Equal(got, want) {
		t.Errorf("settled, unknown, expired, allowed, hits, denied: got %v, want %v", got, want)
	}
	if !c.HasHolds() || s.counted(t, "plain").Counters.HasHolds() {
		t.Error("the limits that have holds are not those with `hold`")
	}
	decide(t, s.limiter, query(t, "user=a>hold.reserve=1"))
	dry := query(t, "user=a>hold.settle=1 refund")
	dry.Dry = true
	decide(t, s.limiter, dry)
	if c = s.counted(t, "user").Counters; c.Settled.Load() != 0 {
		t.Errorf("a dry query has settled %d holds", c.Settled.Load())
	}
	decide(t, s.limiter, query(t, "user=a>hold.settle=1 refund"))
	if n := s.limiter.Totals().NegativeHolds.Load(); n != 1 {
		t.Errorf("%d settlements with is_negative_hits", n)
	}
}

// TestAskedHold checks what a result tells of the hold that was asked for, and which takes share their terms.
func TestAskedHold(t *testing.T) {
	t.Parallel()
	s := holding(t)
	res := decide(t, s.limiter, query(t, "team=a>hold.reserve=stream-1 hits=4 | plain=b | team=a"))
	asked, until := res.Limits[0].Hold, begin.Add(20*time.Second).UnixMicro()
	const id = "29b48932e3b4af06690778f20598ed04" // printf stream-1 | sha256sum
	switch {
	case asked == nil || len(asked.Reserves) != 1 || asked.Reserves[0].Cost != 4 || res.Limits[0].Cost != 4:
		t.Errorf("asked for %+v at a cost of %d", asked, res.Limits[0].Cost)
	case res.Limits[1].Hold != nil || res.Limits[2].Hold != nil:
		t.Error("a plain take asks for a hold")
	case res.Limits[0].Settles(), res.Limits[0].Decision.Held.Until != until:
		t.Errorf("settles %t, until %d, want %d", res.Limits[0].Settles(), res.Limits[0].Decision.Held.Until, until)
	}
	if got := hex.EncodeToString(asked.Reserves[0].ID[:]); got != id {
		t.Errorf("the id %s, want %s", got, id)
	}
	res = decide(t, s.limiter, query(t, "team=b>hold.settle=stream-1 hits=18446744073709551615"))
	if got := &res.Limits[0]; got.Cost != 21 || got.Decision.Remaining != 0 {
		t.Errorf("a settlement of too much costs %d and leaves %d", got.Cost, got.Decision.Remaining)
	}
	res = decide(t, s.limiter, query(t, "team=a>hold.settle=stream-1 hits=7"))
	if got := &res.Limits[0]; !got.Settles() || got.Hold.Settles[0].ID != asked.Reserves[0].ID || got.Cost != 7 {
		t.Errorf("settles %+v at a cost of %d, want the id %x", got.Hold, got.Cost, asked.Reserves[0].ID)
	}
}

// TestSettlementEndsNoRunOfDenials checks that the key of a settlement stays in its run of denials.
func TestSettlementEndsNoRunOfDenials(t *testing.T) {
	t.Parallel()
	s := holding(t)
	decide(t, s.limiter, query(t, "user=a>hold.reserve=1"))
	since := decide(t, s.limiter, query(t, "user=a>hold.reserve=2")).DeniedSince
	for range 3 {
		s.now.Add(1)
		decide(t, s.limiter, query(t, "user=a>hold.settle=of-another"))
		if got := decide(t, s.limiter, query(t, "user=a>hold.reserve=2")).DeniedSince; got != since || since == 0 {
			t.Errorf("denied since %d, want %d", got, since)
		}
	}
}

// TestKeyOfConcurrency checks that the window in the key of a bucket is 0, and that an entry for a hold is no part of
// it.
func TestKeyOfConcurrency(t *testing.T) {
	t.Parallel()
	s := holding(t)
	entries := query(t, "user=a>hold.reserve=1").Descriptors[0].Entries
	for _, e := range [][]descriptors.Entry{entries, entries[:1]} {
		found := s.rules.Locate("test", e, nil)
		if len(found) != 2 || found[0].Take.Key != "rl:4:test4:user*/c0;1:a" || found[0].Take.Hold == nil {
			t.Errorf("%v: found %+v", e, found)
		}
	}
}

// TestPlainTakesShareTheirHold checks that plain takes of a limit with holds have its Hold, and others none.
func TestPlainTakesShareTheirHold(t *testing.T) {
	t.Parallel()
	s := holding(t)
	var holds []*bucket.Hold
	store := &pure{states: map[string]bucket.State{}, clock: s.now.Load, asked: func(takes []bucket.Take) {
		holds = append(holds, takes[0].Hold)
	}}
	limiter := ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return s.rules }, Store: store})
	for _, ask := range []string{"team=a", "team=b hits=7", "team=b hits=0", "plain=a"} {
		decide(t, limiter, query(t, ask))
	}
	terms := s.counted(t, "team").Hold
	if terms == nil || !slices.Equal(holds, []*bucket.Hold{terms, terms, terms, nil}) {
		t.Errorf("got %v, want three times %v", holds, terms)
	}
}
