package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// undone decides a query whose caller does not get the answer. It returns whether there were holds to undo.
func undone(t *testing.T, l *ratelimit.Limiter, text string) bool {
	t.Helper()
	var plan ratelimit.Plan
	var rounds ratelimit.Rounds
	var res ratelimit.Result
	q := query(t, text)
	l.Plan(&q, &plan, &rounds)
	for more := true; more; more = rounds.Next() {
		ended := make(chan struct{}, 1)
		if rounds.Len() > 0 {
			l.Start(t.Context(), &rounds, func() { ended <- struct{}{} })
			<-ended
		}
		if l.Finish(&plan, &rounds, &res) {
			break
		}
	}
	u := plan.Undo(&rounds)
	plan.Reset()
	rounds.Reset() // what undoes holds has copies
	if u != nil {
		u.Start()
	}
	return u != nil
}

const undoRules = `
-- rules.yaml --
domain: test
descriptors:
  - {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 2, hold: {ttl: 20s}}}
  - {key: team, rate_limit: {unit: minute, requests_per_unit: 10, algorithm: fixed_window, hold: {ttl: 20s}}}
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 9, algorithm: fixed_window, hold: {ttl: 20s}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: fixed_window}}
`

// TestUndo: what a query has reserved is removed, and nothing else. What it was charged stays.
func TestUndo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query string
		undo  bool
		count uint64 // of holds of user, team and quiet
		left  string // the units of team, of quiet and of user that are held, and what is left of plain
	}{
		{"team=a>hold.reserve=x hits=4", true, 1, "1 1 1 1"},
		{"team=a>hold.reserve=old hits=4", true, 1, "1 1 1 1"}, // the hold of the same id from before stays
		{"team=a>hold.reserve= hits=4", true, 1, "1 1 1 1"},    // with an id of the service's own
		{"team=a>hold.reserve=x hits=4 | team=a>hold.reserve=x hits=2", true, 2, "1 1 1 1"},
		{"team=a>hold.reserve=x hits=4 | user=a>hold.reserve=x | quiet=a>hold.reserve=x", true, 3, "1 1 1 1"},
		{"team=a>hold.reserve=x hits=4 | plain=a", true, 1, "1 1 1 0"},
		{"team=a>hold.reserve=x hits=4 | team=a>hold.settle=old hits=0", true, 1, "0 1 1 1"}, // the settlement stays
		{"team=a>hold.reserve=x hits=10", false, 0, "1 1 1 1"},                               // it is denied
		{"quiet=a>hold.reserve=x | plain=a hits=2", true, 1, "1 1 1 0"},                      // held, although it is denied
		{"quiet=a>hold.reserve=x hits=9", false, 0, "1 1 1 1"},                               // it would be denied
		{"team=a>hold.reserve=x hits=0", false, 0, "1 1 1 1"},
		{"team=a>hold.settle=old hits=0", false, 0, "0 1 1 1"},
		{"plain=a", false, 0, "1 1 1 0"},
		{"none=a", false, 0, "1 1 1 1"},
	} {
		for _, settings := range []string{"", "\n-- settings --\nstrict"} {
			s := newScenario(t, txtar.Parse([]byte(undoRules+settings)))
			s.now.Store(begin.UnixMicro())
			decide(t, s.limiter, query(t, "team=a>hold.reserve=old | user=a>hold.reserve=old | quiet=a>hold.reserve=old"))
			s.now.Add(1)
			if got := undone(t, s.limiter, c.query); got != c.undo {
				t.Errorf("%s: undone: %t, want %t", c.query, got, c.undo)
			}
			res := decide(t, s.limiter, query(t, "team=a hits=0 | quiet=a hits=0 | user=a hits=0 | plain=a hits=0"))
			held := func(i int) int64 { return res.Limits[i].Decision.Held.Units }
			if got := fmt.Sprint(held(0), held(1), held(2), res.Limits[3].Decision.Remaining); got != c.left {
				t.Errorf("%s: held and left: %s, want %s", c.query, got, c.left)
			}
			count := uint64(0)
			for _, rule := range []string{"user", "team", "quiet"} {
				l := s.counted(t, rule)
				count += l.Counters.Undone.Load()
				if n := l.Counters.Unknown.Load(); n > 0 {
					t.Errorf("%s: %d unknown", c.query, n)
				}
			}
			if n := s.limiter.Totals().NotUndone.Load(); count != c.count || n > 0 {
				t.Errorf("%s: %d undone, %d not, want %d and 0", c.query, count, n, c.count)
			}
		}
	}
}

// lost is a store that does not answer, or that answers later.
type lost struct {
	ratelimit.Store
	err     error
	waiting []func()
}

func (l *lost) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	if l.err == nil {
		l.Store.Start(ctx, requests, outcomes, done)
		return
	}
	l.waiting = append(l.waiting, func() {
		for i := range outcomes {
			outcomes[i] = bucket.Outcome{Err: l.err}
		}
		done()
	})
}

// TestUndoIsBounded has more callers that leave at once than the store is asked for, and a store that fails.
func TestUndoIsBounded(t *testing.T) {
	t.Parallel()
	var reported error
	s := newScenario(t, txtar.Parse([]byte(undoRules)))
	store := &lost{Store: &pure{states: map[string]bucket.State{}, clock: begin.UnixMicro}}
	l := ratelimit.New(ratelimit.Config{
		Rules: func() *ratelimit.Rules { return s.rules }, Store: store, Fallback: store,
		Undone: func(_ string, _ int, err error) { reported = err },
	})
	const most, more = 1024, 10
	for i := range most + more {
		store.err = nil
		q := query(t, fmt.Sprintf("team=%d>hold.reserve=x", i))
		var plan ratelimit.Plan
		var rounds ratelimit.Rounds
		l.Plan(&q, &plan, &rounds)
		l.Start(t.Context(), &rounds, func() {})
		l.Finish(&plan, &rounds, new(ratelimit.Result))
		store.err = errors.New("a failure")
		plan.Undo(&rounds).Start()
	}
	if n := l.Totals().NotUndone.Load(); n != more || len(store.waiting) != most {
		t.Errorf("%d are not undone, %d are sent; want %d and %d", n, len(store.waiting), more, most)
	}
	for _, answer := range store.waiting {
		answer()
	}
	if n := l.Totals().NotUndone.Load(); n != more+most || !errors.Is(reported, store.err) {
		t.Errorf("after the answers: %d are not undone, %v is reported", n, reported)
	}
	store.err = nil
	if !undone(t, l, "team=b>hold.reserve=x") || s.counted(t, "team").Counters.Undone.Load() != 1 {
		t.Error("afterwards, nothing is undone")
	}
}

// TestUndoLocally: what the fallback store has reserved, it removes.
func TestUndoLocally(t *testing.T) {
	t.Parallel()
	s := newScenario(t, txtar.Parse([]byte(undoRules)))
	fallback := &pure{states: map[string]bucket.State{}, clock: begin.UnixMicro}
	for _, fails := range []bool{false, true} {
		var after ratelimit.Store = fallback
		if fails {
			after = failing{}
		}
		l := ratelimit.New(ratelimit.Config{
			Rules: func() *ratelimit.Rules { return s.rules }, Store: failing{}, Fallback: after,
		})
		if got := undone(t, l, "plain=a | team=a>hold.reserve=x"); got == fails {
			t.Errorf("the fallback fails: %t; undone: %t", fails, got)
		}
	}
	for key, state := range fallback.states {
		if n := state.Holds.Number(); n > 0 {
			t.Errorf("%q has %d holds", key, n)
		}
	}
}
