package ratelimit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// noting notes decisions on the keys of a limit of 100 in a sketch, without a store.
type noting struct {
	*Limiter
	plan   Plan
	rounds Rounds
	now    *time.Time
	limit  RuleLimit
}

func newNoting() *noting {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := &noting{now: &now}
	n.limit = RuleLimit{Limit: bucket.Limit{Requests: 100, Window: 60_000_000}}
	n.Limiter = New(Config{Rules: func() *Rules { return nil }, Now: func() time.Time { return now }})
	return n
}

// with returns a caller of its own.
func (n *noting) with(entries ...descriptors.Entry) *noting {
	one := *n
	query := &Query{Descriptors: []descriptors.Descriptor{{Entries: entries}}}
	one.plan = Plan{limiter: n.Limiter, query: query, matches: make([]match, 1)}
	return &one
}

// note notes a decision on a key, with what is left of the limit. It counts for so many requests.
func (n *noting) note(key string, allowed bool, left int64, counts uint64) int64 {
	n.plan.query.Descriptors[0].Entries[0].Value = key
	d, counters := bucket.Decision{Allowed: allowed, Remaining: left, ResetAfter: 60_000_000}, &n.totals.RequestLimits
	far := allowed && left >= 20 && counts == 0
	takes := []bucket.Take{{Key: "rl:4shop3key;some-bytes:" + key}}
	one := &noted{&n.plan, &appliedLimit{limit: &n.limit}, counters, &d, 100, counts, far}
	return n.plan.note(one, takes, &n.rounds)
}

func (n *noting) keys() map[string]HotKey {
	keys := map[string]HotKey{}
	for _, k := range n.Hot().Keys {
		keys[strings.TrimPrefix(k.Entries, "key=")] = k
	}
	return keys
}

// TestSketchBoundsErrors compares a sketch with exact maps: counts of 40,000 keys, of which most are replaced, and
// runs of up to 1,081 keys, which are never replaced.
func TestSketchBoundsErrors(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 23))
		n := newNoting().with(descriptors.Entry{Key: "key"})
		hits, since, denials := map[string]float64{}, map[string]time.Time{}, map[string]uint64{}
		for range 100_000 {
			number := int(math.Exp(random.Float64()*math.Log(40_000)) - 1) // Zipf
			key, counts := fmt.Sprint(number), uint64(random.IntN(2))*64
			switch over := number%37 == 5 && random.IntN(20) > 0; { // at most 1,081 keys
			case over:
				if denials[key]++; denials[key] == 1 {
					since[key] = *n.now
				}
				n.note(key, false, 0, counts)
			case counts > 0 || random.IntN(100) == 0:
				delete(denials, key)
				n.note(key, true, 50+50*int64(random.IntN(2)), counts)
			default:
				delete(denials, key)
				n.note(key, true, 5, 0) // near
			}
			hits[key] += float64(counts)
			if random.IntN(1000) == 0 {
				*n.now = n.now.Add(time.Millisecond)
			}
		}
		seconds := 10 + float64(n.now.UnixMicro()%hotHalf)/1e6
		got, worst := n.keys(), 0.0
		for key, k := range got {
			count, err := k.Rate*seconds, (k.RateError)*seconds
			if count < hits[key]-0.5 || count-err > hits[key]+0.5 {
				t.Fatalf("seed %d, key %s: %.0f with the error %.0f, want %.0f", seed, key, count, err, hits[key])
			}
			worst = max(worst, err)
		}
		for key, want := range hits {
			if _, ok := got[key]; !ok && want > worst+0.5 {
				t.Errorf("seed %d: a key with %.0f requests is not in the sketch, whose errors are at most %.0f", seed, want, worst)
			}
		}
		if n.sketch.forgotten.Load() > 0 {
			t.Fatalf("seed %d: keys over their limit were forgotten", seed)
		}
		for key, want := range denials {
			if k := got[key]; k.State != HotOver || k.Denied != want || !k.DeniedSince.Equal(since[key]) {
				t.Fatalf("seed %d, key %s: %+v, want %d denials since %v", seed, key, k, want, since[key])
			}
		}
		over, counted := 0, n.totals.RequestLimits.over.Load()
		for _, k := range got {
			if k.State == HotOver {
				over++
			}
		}
		if over != len(denials) || int64(over) != counted || over < 400 {
			t.Errorf("seed %d: %d keys are over, %d are counted, want %d", seed, over, counted, len(denials))
		}
	}
}

// TestRunsEnd denies a key, and shows what ends the run: a request that is allowed, near or far from the limit, and the
// time after which the bucket is unused.
func TestRunsEnd(t *testing.T) {
	t.Parallel()
	n := newNoting().with(descriptors.Entry{Key: "key"})
	begin := *n.now
	is := func(what string, state string, denied uint64, since time.Time) {
		t.Helper()
		k := n.keys()["a"]
		at, count := n.DeniedSince("rl:4shop3key;some-bytes:a")
		if k.State != state || k.Denied != denied || !k.DeniedSince.Equal(since) || count != denied || !at.Equal(since) {
			t.Errorf("%s: %+v, DeniedSince %v %d; want %s, %d denials since %v", what, k, at, count, state, denied, since)
		}
	}
	n.note("a", true, 19, 0)
	is("near", HotNear, 0, time.Time{})
	for i := range 3 {
		*n.now = begin.Add(time.Duration(i) * time.Second)
		if got := n.note("a", false, 0, 0); got != begin.UnixMicro() {
			t.Errorf("denial %d: the run begins at %d, want %d", i, got, begin.UnixMicro())
		}
	}
	is("denied", HotOver, 3, begin)
	n.note("b", true, 50, 0)
	is("another key is allowed", HotOver, 3, begin)
	n.note("a", true, 50, 0)
	is("allowed", HotOnly, 0, time.Time{})
	n.note("a", false, 0, 0)
	n.note("a", true, 3, 0)
	is("allowed near the limit", HotNear, 0, time.Time{})
	n.note("a", false, 0, 0)
	is("denied again", HotOver, 1, *n.now)
	*n.now = n.now.Add(time.Minute)
	if k, ok := n.keys()["a"]; ok {
		t.Errorf("after the reset: %+v, want nothing", k)
	}
	n.note("a", false, 0, 0)
	is("denied after the reset", HotOver, 1, *n.now)
	if got := n.totals.RequestLimits.over.Load(); got != 1 {
		t.Errorf("%d keys are over, want 1", got)
	}
}

// TestSketchForgets has more keys over their limit than a sketch holds. It reports how many it has forgotten.
func TestSketchForgets(t *testing.T) {
	t.Parallel()
	n := newNoting().with(descriptors.Entry{Key: "key"})
	const keys = 3 * hotSets * hotWays
	for i := range keys {
		n.note(fmt.Sprint(i), false, 0, 64)
	}
	hot := n.Hot()
	if len(hot.Keys) != hotSets*hotWays || hot.Forgotten != keys-hotSets*hotWays {
		t.Errorf("%d keys, %d forgotten; want %d and all others", len(hot.Keys), hot.Forgotten, hotSets*hotWays)
	}
	n.note("merely hot", true, 50, 64)
	if _, ok := n.keys()["merely hot"]; ok || n.Hot().Forgotten != hot.Forgotten {
		t.Error("a key that is only hot has replaced one over its limit")
	}
}

// TestSketchConcurrently denies keys in many goroutines, each of which also allows keys of its own. All denials count.
func TestSketchConcurrently(t *testing.T) {
	t.Parallel()
	n := newNoting()
	const callers, rounds, keys = 8, 3000, 50
	var group sync.WaitGroup
	for c := range callers {
		one := n.with(descriptors.Entry{Key: "key"})
		group.Go(func() {
			for i := range rounds {
				one.note(fmt.Sprint("shared ", i%keys), false, 0, uint64(i%2))
				one.note(fmt.Sprint("hot ", c, i), true, 50, 1)
				own := fmt.Sprint("own ", c)
				one.note(own, i%3 == 0, 0, 0)
				if i%1000 == 0 {
					one.Hot()
				}
			}
		})
	}
	group.Wait()
	got := n.keys()
	for i := range keys {
		key := fmt.Sprint("shared ", i)
		if k := got[key]; k.State != HotOver || k.Denied != callers*rounds/keys {
			t.Errorf("%s: %+v, want %d denials", key, k, callers*rounds/keys)
		}
	}
	for c := range callers {
		if k := got[fmt.Sprint("own ", c)]; k.State != HotOver || k.Denied != 2 {
			t.Errorf("own key of caller %d: %+v, want 2 denials", c, k)
		}
	}
	if got, want := n.totals.RequestLimits.over.Load(), int64(keys+callers); got != want {
		t.Errorf("%d keys are over, want %d", got, want)
	}
}

// TestSampling counts requests of two clients that arrive in turn. Each client has about the same share, whatever the
// gaps. With few requests, each is counted.
func TestSampling(t *testing.T) {
	t.Parallel()
	n := newNoting()
	var counted [2]uint64
	const requests = 500_000
	for i := range requests {
		if i%(requests/1000) == 0 {
			*n.now = n.now.Add(time.Millisecond)
		}
		counted[i%2] += n.sketch.sample(&n.rounds)
		if i+1 == hotExact/2 && counted[0]+counted[1] != hotExact/2 {
			t.Errorf("of the first %d requests, %v are counted", hotExact/2, counted)
		}
	}
	for _, got := range counted {
		const sigma = 2 * hotEvery // of a gap, more than it is
		if most := 5 * sigma * math.Sqrt(requests/2/hotEvery); math.Abs(float64(got)-requests/2) > most {
			t.Errorf("%d of %d requests, want about half", got, requests)
		}
	}
	if n.sketch.every.Load() != hotEvery {
		t.Errorf("each request is counted at 500,000 a second")
	}
	for range 20 {
		*n.now = n.now.Add(time.Second)
		for n.rounds.gap > 1 {
			n.sketch.sample(&n.rounds)
		}
		n.sketch.sample(&n.rounds)
	}
	if n.sketch.every.Load() != 1 {
		t.Error("few requests are still sampled")
	}
}

// TestSketchIsBounded checks the size that docs/sizing.md states, and that a long key stays distinct.
func TestSketchIsBounded(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(sketch{}); got > 1100<<10 || unsafe.Sizeof(hotEntry{}) > 256 {
		t.Errorf("a sketch has %d bytes, an entry %d", got, unsafe.Sizeof(hotEntry{}))
	}
	n := newNoting().with(descriptors.Entry{Key: "key"})
	long := strings.Repeat("x", 100_000)
	n.note(long+"1", false, 0, 0)
	n.note(long+"2", false, 0, 0)
	n.note(strings.Repeat("y", hotText), false, 0, 0)
	keys := n.keys()
	if len(keys) != 3 {
		t.Errorf("want three keys, got %v", keys)
	}
	for _, k := range keys {
		if len(k.Entries) > hotText || !strings.Contains(k.Entries, "…") || k.ID == "" {
			t.Errorf("a long key is %q", k.Entries)
		}
	}
}

// TestHeldKeysAreUsed shows a bucket that only holds fill: it is in use until they can have expired.
func TestHeldKeysAreUsed(t *testing.T) {
	var e hotEntry
	l := &appliedLimit{limit: &RuleLimit{
		Limit: bucket.Limit{Algorithm: bucket.Concurrency, Requests: 5}, Hold: &bucket.Hold{TTL: 7},
	}}
	for units, until := range map[int64]int64{0: 100, 5: 107} {
		held := &bucket.Held{Units: units}
		e.show(&noted{limit: l, Decision: &bucket.Decision{Allowed: true, Held: held}, capacity: 5}, 100)
		if got := e.until.Load(); got != until {
			t.Errorf("%d units held: in use until %d, want %d", units, got, until)
		}
	}
}
