package bucket_test

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/test/testenv"
)

// A scenario is the meaning of the fuzzer's bytes: a limit, and costs that come after steps of time.
type scenario struct {
	limit   bucket.Limit
	counted bool
	steps   []fuzzStep
}

// A fuzzStep is a forward step of time, a small step back of the clock after it, and a cost.
type fuzzStep struct {
	stride, back int64
	cost         uint64
}

// readScenario reads a scenario from the bytes. ok is false if Check refuses the limit.
func readScenario(algorithm bucket.Algorithm, data []byte) (s scenario, ok bool) {
	next := func() int64 {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int64(b)
	}
	pick := func(choices ...int64) int64 { return choices[int(next())%len(choices)] }
	s.limit = bucket.Limit{
		Algorithm: algorithm,
		Requests:  pick(1, 2, 3, 7, 10, 100, 1000, 9999, bucket.MaxRequests, algorithm.Most()),
		Window:    pick(1, 2, 10, 999, 1_000_000, 1_000_003, 60_000_000, 3_600_000_000, day, 30*day),
	}
	if algorithm == bucket.CalendarWindow {
		unit := pick(0, 1, 2, 3)
		s.limit.Window = []int64{day, 7 * day, 30 * day, 365 * day}[unit]
		zone := []string{"UTC", "Europe/Berlin", "America/Havana", "Atlantic/Azores", "Pacific/Apia"}[pick(0, 1, 2, 3, 4)]
		s.limit.Calendar, _ = bucket.CalendarNamed(bucket.CalendarUnits[unit] + "@" + zone)
	}
	s.limit.Burst = pick(s.limit.Requests, 1, 2, 5, 2*s.limit.Requests+1, bucket.MaxRequests)
	s.counted = next()%4 == 0
	capacity, window := s.limit.Capacity(), s.limit.Window
	for len(data) > 0 && len(s.steps) < 100 {
		s.steps = append(s.steps, fuzzStep{
			stride: pick(0, 1, 2, window/3, window-1, window, window+1, 2*window, window/s.limit.Requests, window/10+next()),
			back:   pick(0, 0, 0, 0, 0, 0, 0, 1, 1000, bucket.MaxClockStep),
			cost:   uint64(pick(1, 1, 1, 1, 0, 2, 3, capacity/2, capacity-1, capacity, capacity+1, 1+next())),
		})
	}
	return s, s.limit.Check() == nil
}

// bucketUnderTest is one bucket in a map.
type bucketUnderTest struct {
	scenario
	state bucket.State
	now   int64
}

func newBucketUnderTest(s scenario) *bucketUnderTest {
	return &bucketUnderTest{scenario: s, now: 1_700_000_000_000_000}
}

// step makes a step and takes its cost.
func (b *bucketUnderTest) step(s fuzzStep) bucket.Decision {
	b.now += s.stride - s.back
	return b.take(b.now, s.cost, b.counted)
}

func (b *bucketUnderTest) take(at int64, cost uint64, counted bool) bucket.Decision {
	r := &bucket.Request{At: at}
	r.Add(bucket.Take{Key: "k", Limit: b.limit, Cost: cost, CountDenied: counted})
	loaded, o := []bucket.Loaded{{State: b.copied()}}, bucket.Outcome{}
	r.Decide(0, loaded, &o)
	if loaded[0].Changed {
		b.state = loaded[0].State
	}
	return o.Decisions[0]
}

// wouldBe returns the decision at another time and changes nothing.
func (b *bucketUnderTest) wouldBe(at int64, cost uint64, state bucket.State) bucket.Decision {
	other := &bucketUnderTest{scenario: b.scenario, state: state}
	return other.take(at, cost, false)
}

func (b *bucketUnderTest) copied() bucket.State {
	s := b.state
	s.Grants = append([]bucket.Grant(nil), s.Grants...)
	return s
}

// seed gives the fuzzer its first scenarios. A plain test run uses only these.
func seed(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range testenv.Steps(100, 300) {
		data := make([]byte, 4+random.IntN(200))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
}

// forEach runs the check on the scenario for each algorithm.
func forEach(t *testing.T, data []byte, check func(t *testing.T, b *bucketUnderTest)) {
	for _, algorithm := range append([]bucket.Algorithm{bucket.CalendarWindow}, bucket.Algorithms...) {
		if s, ok := readScenario(algorithm, data); ok {
			check(t, newBucketUnderTest(s))
		}
	}
}

// FuzzBounds checks the bounds of docs/algorithms.md in every interval of the bucket's time. It also checks that the
// bucket's time never runs faster than real time, so that a small step back of the clock allows nothing more.
func FuzzBounds(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		forEach(t, data, func(t *testing.T, b *bucketUnderTest) {
			var passed []bucket.Grant
			elapsed := int64(0) // since the latest one that passed
			for _, s := range b.steps {
				s.back = min(s.back, max(0, b.now+s.stride-b.state.Last+bucket.MaxClockStep))
				elapsed += s.stride
				if d := b.step(s); !d.Allowed || s.cost == 0 {
					continue
				}
				if n := len(passed); n > 0 && b.state.Last-passed[n-1].At > elapsed {
					t.Fatalf("%+v: the bucket's time went from %d to %d within %d µs",
						b.limit, passed[n-1].At, b.state.Last, elapsed)
				}
				passed = append(passed, bucket.Grant{At: b.state.Last, Cost: int64(s.cost)})
				elapsed = 0
			}
			for first := range passed {
				sum := int64(0)
				for _, g := range passed[first:] {
					sum += g.Cost
					if !withinBounds(b.limit, passed[first].At, g.At, sum) {
						t.Fatalf("%+v let %d pass from %d to %d", b.limit, sum, passed[first].At, g.At)
					}
				}
			}
		})
	})
}

// withinBounds reports whether n units may pass from one time to another, both included.
func withinBounds(l bucket.Limit, from, to, n int64) bool {
	w := l.Window
	switch l.Algorithm {
	case bucket.FixedWindow, bucket.CalendarWindow:
		_, end := l.WindowAt(from)
		return to >= end || n <= l.Requests
	case bucket.SlidingWindowLog:
		return to-from >= w || n <= l.Requests
	case bucket.SlidingWindowCounter: // L·(1 + s/W) in an interval of s ≤ W, L in a window
		if from/w == to/w && n > l.Requests {
			return false
		}
		return to-from > w || atMost(n, w, l.Requests, w+to-from)
	default: // B + s·L/W in any interval of s
		return n <= l.Burst || atMost(n-l.Burst, w, to-from, l.Requests)
	}
}

// atMost reports whether a·b ≤ c·d.
func atMost(a, b, c, d int64) bool {
	var left, right big.Int
	return left.Mul(big.NewInt(a), big.NewInt(b)).Cmp(right.Mul(big.NewInt(c), big.NewInt(d))) <= 0
}

// FuzzForecasts checks that each forecast of a decision is exact to the microsecond if no other request comes.
func FuzzForecasts(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		forEach(t, data, func(t *testing.T, b *bucketUnderTest) {
			for _, s := range b.steps {
				d := b.step(s)
				soon := func(d int64, cost uint64) bucket.Decision { return b.wouldBe(b.now+d, cost, b.copied()) }
				fail := func(what string, after int64) {
					t.Helper()
					t.Fatalf("%+v at %d, cost %d: %+v, but %s after %d µs", b.limit, b.now, s.cost, d, what, after)
				}
				capacity := b.limit.Capacity()
				switch {
				case d.Allowed && d.RetryAfter != 0:
					fail("allowed", 0)
				case d.Allowed:
				case d.RetryAfter == bucket.Never:
					if int64(s.cost) <= capacity {
						fail("it could pass", 0)
					}
				case !soon(d.RetryAfter, s.cost).Allowed:
					fail("denied", d.RetryAfter)
				case soon(d.RetryAfter-1, s.cost).Allowed:
					fail("allowed", d.RetryAfter-1)
				}
				if d.Remaining > 0 && !soon(0, uint64(d.Remaining)).Allowed || soon(0, uint64(d.Remaining)+1).Allowed {
					fail("not exactly what remains passes", 0)
				}
				if then := soon(d.ResetAfter, 0); then.Remaining != capacity {
					fail("not all remains", d.ResetAfter)
				}
				if !b.limit.Algorithm.Resets() && d.ResetAfter > 0 && soon(d.ResetAfter-1, 0).ResetAfter != 1 {
					fail("reset", d.ResetAfter-1)
				}
				switch {
				case d.NextIn == 0:
					if d.Remaining != capacity {
						fail("more can come", 0)
					}
				case soon(d.NextIn, 0).Remaining <= d.Remaining:
					fail("no more remains", d.NextIn)
				case soon(d.NextIn-1, 0).Remaining != d.Remaining:
					fail("more remains", d.NextIn-1)
				}
				if d.ExpireAt == 0 {
					continue
				}
				for _, cost := range []uint64{0, 1, uint64(capacity)} {
					lost := b.wouldBe(d.ExpireAt, cost, bucket.State{})
					if diff := cmp.Diff(b.wouldBe(d.ExpireAt, cost, b.copied()), lost); diff != "" {
						t.Fatalf("%+v, cost %d: at %d the lost state changes the decision:\n%s", b.limit, cost, d.ExpireAt, diff)
					}
				}
			}
		})
	})
}

// FuzzClockStep checks a step back of more than MaxClockStep: what remains does not grow, and no wait is longer than
// the bucket takes to drain.
func FuzzClockStep(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		forEach(t, data, func(t *testing.T, b *bucketUnderTest) {
			for _, s := range b.steps {
				b.step(s)
			}
			before := b.wouldBe(b.now, 0, b.copied())
			b.now = b.state.Last - bucket.MaxClockStep - 1 - b.limit.Window/7
			after := b.take(b.now, 0, false)
			if b.limit.Algorithm != bucket.SlidingWindowCounter && after.Remaining > before.Remaining {
				t.Fatalf("%+v: %d remained, and %d after the clock went back", b.limit, before.Remaining, after.Remaining)
			}
			if after.ResetAfter > 2*b.limit.Window && !b.limit.Algorithm.HasBurst() {
				t.Fatalf("%+v: after the clock went back the bucket drains in %d µs", b.limit, after.ResetAfter)
			}
		})
	})
}

// FuzzTokenIsLeaky checks that the token bucket and the leaky bucket give the same answers.
func FuzzTokenIsLeaky(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, ok := readScenario(bucket.TokenBucket, data)
		if !ok {
			return
		}
		token, leaky := newBucketUnderTest(s), newBucketUnderTest(s)
		leaky.limit.Algorithm = bucket.LeakyBucket
		for i, step := range s.steps {
			if diff := cmp.Diff(token.step(step), leaky.step(step)); diff != "" {
				t.Fatalf("%+v, step %d (-token +leaky):\n%s", s.limit, i, diff)
			}
		}
	})
}
