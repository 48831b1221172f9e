package bucket_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

// history returns a bucket after some random takes, and the time of the last one.
func history(s scenario, from int) (bucket.State, int64) {
	b := newBucketUnderTest(s)
	for _, step := range s.steps[:from] {
		b.step(step)
	}
	return b.copied(), b.now
}

// known are three states of one bucket and a time.
type known struct {
	*bucket.Limit
	a, b, c bucket.State
	now     int64
}

// forEachKnown runs the check on states that the scenario reaches in each algorithm.
func forEachKnown(t *testing.T, data []byte, check func(t *testing.T, k known)) {
	for _, algorithm := range append([]bucket.Algorithm{bucket.CalendarWindow}, bucket.Algorithms...) {
		s, ok := readScenario(algorithm, data)
		if !ok {
			continue
		}
		n := len(s.steps)
		a, _ := history(s, n)
		b, now := history(s, n/2)
		s.steps = s.steps[n/3:]
		c, _ := history(s, len(s.steps)/2)
		for _, at := range []int64{now, now - 1000, a.Last - bucket.MaxClockStep, a.Last, b.Last + s.limit.Window} {
			check(t, known{&s.limit, a, b, c, at})
		}
	}
}

// joined returns the states merged in their order.
func joined(l *bucket.Limit, now int64, states ...bucket.State) bucket.State {
	s := states[0].Clone()
	s.Remaining(l, now) // brings it to the time
	for _, other := range states[1:] {
		s.Merge(l, &other, now)
	}
	return s
}

// FuzzMerge checks that Merge is idempotent, commutative, associative and monotone, and that nothing is lost by it.
func FuzzMerge(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		forEachKnown(t, data, func(t *testing.T, k known) {
			l, a, b, c, now := k.Limit, k.a, k.b, k.c, k.now
			same := func(law string, x, y bucket.State) {
				t.Helper()
				if diff := cmp.Diff(bare(x), bare(y)); diff != "" {
					t.Fatalf("%s: %+v at %d, of %+v, %+v, %+v:\n%s", law, *l, now, a, b, c, diff)
				}
			}
			before := []bucket.State{a.Clone(), b.Clone(), c.Clone()}
			all := joined(l, now, a, b, c)
			same("idempotent", joined(l, now, a, a), joined(l, now, a))
			same("commutative", joined(l, now, a, b), joined(l, now, b, a))
			same("associative", joined(l, now, a, joined(l, now, b, c)), all)
			same("repeated", joined(l, now, all, b), all)
			if diff := cmp.Diff(before, []bucket.State{a, b, c}); diff != "" {
				t.Fatalf("%+v: Merge has changed its argument:\n%s", *l, diff)
			}
			for _, part := range []bucket.State{a, b, c} {
				grown := all.Clone()
				if other := part; grown.Merge(l, &other, now) {
					t.Fatalf("%+v at %d: %+v has more than %+v, which is made of it", *l, now, part, all)
				}
				// From the time of the joined bucket on, no more fits than in each of its parts.
				part = joined(l, now, part)
				for _, later := range []int64{0, 1, l.Window / 3, l.Window, l.Window + 1, 2*l.Window - 1} {
					if at := max(now, all.Last) + later; all.Used(l, at) < part.Used(l, at) {
						t.Fatalf("%+v at %d: %d of %+v, but %d of a part %+v",
							*l, at, all.Used(l, at), all, part.Used(l, at), part)
					}
				}
			}
		})
	})
}

// bare returns the state without the parts that have no effect.
func bare(s bucket.State) bucket.State {
	if s.Empty() {
		return bucket.State{}
	}
	return s
}

// FuzzKnown checks that Fits, Used and Charge agree with the decision of a request.
func FuzzKnown(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		forEach(t, data, func(t *testing.T, b *bucketUnderTest) {
			for _, s := range b.steps {
				b.step(s)
				now := b.now + s.stride
				state := b.copied()
				shared := state
				fits := state.Fits(&b.limit, now, int64(s.cost))
				used := state.Used(&b.limit, now)
				if diff := cmp.Diff(b.state, shared, cmp.Transformer("", bare)); diff != "" {
					t.Fatalf("%+v: Fits or Used has changed the state:\n%s", b.limit, diff)
				}
				d := b.wouldBe(now, s.cost, b.copied())
				if fits != d.Allowed {
					t.Fatalf("%+v at %d, %+v: %d fits: %t, want %t", b.limit, now, b.state, s.cost, fits, d.Allowed)
				}
				left := b.wouldBe(now, 0, b.copied()).Remaining
				if free := max(0, b.limit.Capacity()-used); free != left {
					t.Fatalf("%+v at %d, %+v: %d used of %d, but %d remain",
						b.limit, now, b.state, used, b.limit.Capacity(), left)
				}
				if !fits || s.cost == 0 {
					continue
				}
				state.Charge(&b.limit, now, int64(s.cost))
				if got := max(0, b.limit.Capacity()-state.Used(&b.limit, now)); got != d.Remaining {
					t.Fatalf("%+v at %d, %+v: after %d, %d remain, want %d", b.limit, now, b.state, s.cost, got, d.Remaining)
				}
			}
		})
	})
}

// TestClone checks that a charge changes no Grants of a clone, and that Merge, Used, Fits and Remaining change none in
// place.
func TestClone(t *testing.T) {
	l := &bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 3, Window: 60_000_000}
	now := int64(1_700_000_000_000_000)
	original := bucket.State{Last: now, Count: 4, Grants: []bucket.Grant{{At: now - 1, Cost: 2}, {At: now, Cost: 2}}}
	want := original.Clone()
	clone := original.Clone()
	clone.Charge(l, now+1, 5)
	for _, at := range []int64{now, now - 3*bucket.MaxClockStep, now + l.Window} {
		copied, other := original, bucket.State{Last: now, Count: 7, Grants: []bucket.Grant{{At: now, Cost: 7}}}
		merged := other
		copied.Merge(l, &merged, at)
		copied.Used(l, at)
		copied.Fits(l, at, 1)
		copied.Remaining(l, at)
		copied.Charge(l, at, 1) // Merge has made it other Grants
		if other.Grants[0].Cost != 7 {
			t.Errorf("the merged states share Grants: %+v", other)
		}
		if diff := cmp.Diff(want, original); diff != "" {
			t.Fatalf("at %v:\n%s", time.UnixMicro(at), diff)
		}
	}
	if cmp.Equal(want, clone) {
		t.Errorf("the clone was not charged: %+v", clone)
	}
}

// TestKnownExtremes checks that no number overflows: a debt under a slow rate, read under a fast one, and large costs.
func TestKnownExtremes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	now := int64(1_700_000_000_000_000)
	for _, algorithm := range bucket.Algorithms {
		for range 1000 {
			l := bucket.Limit{
				Algorithm: algorithm, Requests: 1 + random.Int64N(1<<random.IntN(32)),
				Window: 1 + random.Int64N(1<<random.IntN(51)), Burst: 1 + random.Int64N(1<<random.IntN(32)),
			}
			if l.Check() != nil {
				continue
			}
			s := bucket.State{Last: now, Count: random.Int64N(1 << random.IntN(53)), Part: random.Int64N(2), Rate: 2}
			if algorithm == bucket.SlidingWindowLog {
				s = bucket.State{Last: now, Count: s.Count, Grants: []bucket.Grant{{At: now, Cost: s.Count}}}
			}
			if used := s.Used(&l, now); used < 0 {
				t.Fatalf("%+v of %+v: %d used", s, l, used)
			}
			if s.Fits(&l, now, 1<<63-1) {
				t.Fatalf("%+v of %+v: everything fits", s, l)
			}
			before := s.Used(&l, now)
			if s.Charge(&l, now, 1<<63-1); s.Used(&l, now) < before {
				t.Fatalf("%+v of %+v: %d used before the charge", s, l, before)
			}
		}
	}
}

// cutAt returns a log as an answer shows it: the units after the first grants are at the newest time.
func cutAt(s bucket.State, grants int) bucket.Floor {
	c := s.Clone()
	last := len(c.Grants) - 1
	for ; grants < last; last-- {
		c.Grants[last-1] = bucket.Grant{At: c.Grants[last].At, Cost: c.Grants[last-1].Cost + c.Grants[last].Cost}
		c.Grants = c.Grants[:last]
	}
	return bucket.Floor{State: c, At: c.Last, Cut: true}
}

// TestJoinCut joins what several replicas know of parts of a log with what its store has kept of it. The result never
// holds more than was really charged, now or later. It holds as much as the best informed replica knew, and what was
// charged since.
func TestJoinCut(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	l := &bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 10_000, Window: 1000}
	for round := range 3000 {
		now := int64(1_700_000_000_000_000)
		var truth, kept bucket.State
		var floors []bucket.Floor
		most := int64(0) // what a floor knows
		lost := random.IntN(60)
		for i := range 60 {
			now += random.Int64N(9)
			cost := 1 + random.Int64N(3)
			truth.Charge(l, now, cost)
			if i < lost/2 || i >= lost { // the store lost a part of the log
				kept.Charge(l, now, cost)
			}
			if i < lost && random.IntN(20) == 0 {
				floors = append(floors, cutAt(truth, 1+random.IntN(9)))
			}
		}
		got := kept.Clone()
		for range 2 {
			for _, i := range random.Perm(len(floors)) {
				f := &floors[i]
				storetest.JoinFloor(f, l, &got, now)
				since := kept.Used(l, now) - upTo(&kept, f.At)
				most = max(most, f.State.Count+since, kept.Used(l, now))
			}
			if used := got.Used(l, now); used < most {
				t.Fatalf("round %d: %d used, but %d are known: %+v of %+v and %+v", round, used, most, got, kept, floors)
			}
		}
		for at := now; at < now+l.Window; at += 1 + random.Int64N(20) {
			if got.Used(l, at) > truth.Used(l, at) {
				t.Fatalf("round %d: %d used %d later, but %d were charged: %+v of %+v and %+v; really %+v",
					round, got.Used(l, at), at-now, truth.Used(l, at), got, kept, floors, truth)
			}
		}
		again := got.Clone()
		for i := range floors {
			if storetest.JoinFloor(&floors[i], l, &again, now) {
				t.Fatalf("round %d: %+v joined twice adds to %+v", round, floors[i], got)
			}
		}
	}
}

// upTo returns the units of a log up to a time.
func upTo(s *bucket.State, at int64) (n int64) {
	for _, g := range s.Grants {
		if g.At <= at {
			n += g.Cost
		}
	}
	return n
}

// someHolds returns the holds of a few ids, as a store or a replica may know them.
func someHolds(random *rand.Rand, now int64) *bucket.Holds {
	h := new(bucket.Holds)
	for range random.IntN(6) {
		h.Add(bucket.HoldCost{
			ID: bucket.HoldID{byte(random.IntN(3))}, Cost: 1 + random.Uint64N(3), Expires: now + random.Int64N(3),
		})
	}
	if random.IntN(2) == 0 {
		h.Others = bucket.SomeHolds{Units: random.Int64N(5), Number: 1 + random.Int64N(3), Until: now + random.Int64N(3)}
	}
	return h
}

// places returns the live holds without their costs: those of one place are one hold to Merge.
func places(h *bucket.Holds) map[bucket.HoldCost]bool {
	all := map[bucket.HoldCost]bool{}
	for _, c := range h.Live() {
		c.Cost = 0
		all[c] = true
	}
	return all
}

// TestMergeHolds merges holds. It is idempotent, commutative and associative, and keeps every hold of both, and the
// larger parts of the sums. It changes no argument.
func TestMergeHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	now := int64(1_700_000_000_000_000)
	for _, algorithm := range append([]bucket.Algorithm{bucket.Concurrency}, bucket.Algorithms...) {
		l := &bucket.Limit{Algorithm: algorithm, Requests: 10, Burst: 10, Window: 60_000_000}
		for range 500 {
			var s [3]bucket.State
			for i := range s {
				s[i].Holds = someHolds(random, now)
				s[i].Charge(l, now-random.Int64N(5), random.Int64N(3))
			}
			before := [3]int64{s[0].Holds.Units(), s[1].Holds.Units(), s[2].Holds.Units()}
			same := func(law string, x, y bucket.State) {
				t.Helper()
				if diff := cmp.Diff(places(x.Holds), places(y.Holds)); diff != "" || x.Holds.Others != y.Holds.Others {
					t.Fatalf("%v, %s: %+v and %+v\n%s", algorithm, law, x.Holds.Others, y.Holds.Others, diff)
				}
			}
			all := joined(l, now, s[0], s[1], s[2])
			same("idempotent", joined(l, now, s[0], s[0]), s[0])
			same("commutative", joined(l, now, s[0], s[1]), joined(l, now, s[1], s[0]))
			same("associative", joined(l, now, s[0], joined(l, now, s[1], s[2])), all)
			for i := range s {
				if again := all.Clone(); again.Merge(l, &s[i], now) {
					t.Fatalf("%v: a part adds to what is made of it", algorithm)
				}
				if s[i].Holds.Units() != before[i] {
					t.Fatalf("%v: Merge has changed an argument", algorithm)
				}
				if all.Holds.Number() < s[i].Holds.Number() && len(places(s[i].Holds)) == len(s[i].Holds.Live()) {
					t.Fatalf("%v: a hold is lost", algorithm)
				}
			}
		}
	}
}
