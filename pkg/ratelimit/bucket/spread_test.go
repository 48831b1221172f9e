package bucket_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/test/testenv"
)

// buckets is a store for one goroutine.
type buckets map[string]bucket.State

func (b buckets) decide(now int64, r *bucket.Request, o *bucket.Outcome) {
	loaded := make([]bucket.Loaded, len(r.Takes))
	for i, t := range r.Takes {
		s := b[t.Key]
		loaded[i].State = s.Clone()
	}
	r.Decide(now, loaded, o)
	for i, t := range r.Takes {
		if loaded[i].Changed {
			b[t.Key] = loaded[i].State
		}
	}
}

// TestSpread decides random requests as a whole, and in parts of random sizes. Both answers and the buckets afterwards
// are the same.
func TestSpread(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	for leg := range testenv.Steps(100, 300) {
		now := 1_700_000_000_000_000 + random.Int64N(1e12)
		whole, apart := buckets{}, buckets{}
		limits, holds := make([]bucket.Limit, 1+random.IntN(6)), make([]*bucket.Hold, 6)
		for i := range limits {
			limits[i] = bucket.Limit{
				Algorithm: bucket.Algorithms[random.IntN(len(bucket.Algorithms))],
				Requests:  random.Int64N(8), Burst: 1 + random.Int64N(8), Window: 1 + random.Int64N(2_000_000),
			}
			if leg%2 == 1 {
				holds[i] = &bucket.Hold{TTL: 1 + random.Int64N(3_000_000), Most: 1 + random.Int64N(4), Release: random.IntN(2) == 0}
			}
		}
		for step := range 100 {
			now += random.Int64N(500_000)
			var r bucket.Request
			for _, i := range random.Perm(len(limits))[:1+random.IntN(len(limits))] {
				take := bucket.Take{
					Key: fmt.Sprint(i), Limit: limits[i], Cost: random.Uint64N(4), Need: random.Uint64N(2) * random.Uint64N(6),
					Refund: random.Uint64N(2) * random.Uint64N(3), CountDenied: random.IntN(3) == 0,
					Role: bucket.Role(random.IntN(3)),
				}
				if terms := holds[i]; terms != nil {
					take.Hold, take.Cost = randomHold(random, *terms), random.Uint64N(2)
					if take.Role == bucket.Quota && len(take.Hold.Reserves) > 0 {
						take.CountDenied = false // a wait for its charge and its holds is known only to one place
					}
				}
				r.Add(take)
			}
			var want, got bucket.Outcome
			whole.decide(now, &r, &want)
			places := 1 + random.IntN(4)
			s := spread(&r, func(int) int { return random.IntN(places) })
			for _, p := range s.First() {
				if random.IntN(4) > 0 {
					apart.decide(now, &p.Request, &p.Outcome)
					continue
				}
				for _, single := range s.Split(p) {
					apart.decide(now, &single.Request, &single.Outcome)
				}
			}
			for _, p := range s.Settle() {
				apart.decide(now, &p.Request, &p.Outcome)
			}
			s.Outcome(&got)
			for i := range r.Takes { // a charge that stays may have another time
				want.Decisions[i].ChargedAt, got.Decisions[i].ChargedAt = 0, 0
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(bucket.Held{})); diff != "" {
				t.Fatalf("seed %d, leg %d, step %d (-whole +in parts):\n%s\n%+v", seed, leg, step, diff, r)
			}
			for key, limit := range limits {
				a, b := whole[fmt.Sprint(key)], apart[fmt.Sprint(key)]
				if x, y := a.Remaining(&limit, now), b.Remaining(&limit, now); x != y {
					t.Fatalf("seed %d, leg %d, step %d: bucket %d has %d left, in parts %d\n%+v", seed, leg, step, key, x, y, r)
				}
				if diff := cmp.Diff(a.Holds.Live(), b.Holds.Live(), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d, leg %d, step %d: the holds of bucket %d (-whole +in parts):\n%s", seed, leg, step, key, diff)
				}
			}
		}
	}
}

// randomHold returns random reserves and settlements of three ids.
func randomHold(random *rand.Rand, h bucket.Hold) *bucket.Hold {
	for _, costs := range []*[]bucket.HoldCost{&h.Reserves, &h.Settles} {
		for range random.IntN(3) {
			*costs = append(*costs, bucket.HoldCost{ID: bucket.HoldID{byte(random.IntN(3))}, Cost: random.Uint64N(4)})
		}
	}
	return &h
}

// spread numbers the places without gaps, as NewSpread requires.
func spread(r *bucket.Request, place func(take int) int) *bucket.Spread {
	numbers := map[int]int{}
	return bucket.NewSpread(r, func(take int) int {
		at := place(take)
		n, ok := numbers[at]
		if !ok {
			n = len(numbers)
			numbers[at] = n
		}
		return n
	})
}

// TestSpreadFails checks that a request that one place cannot decide charges nothing at the others.
func TestSpreadFails(t *testing.T) {
	const now = 1_700_000_000_000_000
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 10, Burst: 10, Window: 60_000_000}
	var r bucket.Request
	for _, key := range []string{"a", "b", "c"} {
		r.Add(bucket.Take{Key: key, Limit: limit, Cost: 3, CountDenied: key == "b"})
	}
	r.Takes[0].Role = bucket.Shadow
	s := bucket.NewSpread(&r, func(take int) int { return take })
	store := buckets{}
	for i, p := range s.First() {
		if i == 2 {
			p.Outcome.Err = fmt.Errorf("no answer: %w", &bucket.ScriptError{Take: 0, Code: "OOM", Message: "OOM"})
			continue
		}
		store.decide(now, &p.Request, &p.Outcome)
	}
	second := s.Settle()
	if s.Settled() != true || len(second) != 2 {
		t.Fatalf("%d parts of a second round, want 2", len(second))
	}
	for _, p := range second {
		store.decide(now, &p.Request, &p.Outcome)
	}
	second[1].Outcome.Err = errors.New("lost")
	if s.Settled() {
		t.Error("settled, with an error in the second round")
	}
	var o bucket.Outcome
	s.Outcome(&o)
	failed, ok := errors.AsType[*bucket.ScriptError](o.Err)
	if !ok || failed.Take != 2 {
		t.Errorf("error %v, want that of take 2", o.Err)
	}
	for key, state := range store {
		if left := state.Remaining(&limit, now); left != 10 {
			t.Errorf("bucket %s: %d of 10 left, want 10", key, left)
		}
	}
}

// TestGiveBack charges random requests, and gives one of them back while others go on. At no time does the bucket then
// allow more than one that was never charged.
func TestGiveBack(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			random := rand.New(rand.NewPCG(seed, uint64(algorithm)))
			full := 0
			for leg := range testenv.Steps(1000, 3000) {
				limit := bucket.Limit{
					Algorithm: algorithm, Requests: 1 + random.Int64N(20), Burst: 1 + random.Int64N(20),
					Window: 1 + random.Int64N(1_000_000),
				}
				now := 1_700_000_000_000_000 + random.Int64N(1e12)
				with, without := buckets{}, buckets{}
				both := func() {
					now += random.Int64N(limit.Window/4 + 1)
					r := bucket.Request{At: now}
					r.Add(bucket.Take{Key: "k", Limit: limit, Cost: random.Uint64N(4)})
					var a, b bucket.Outcome
					before := without["k"]
					before.Grants = append([]bucket.Grant(nil), before.Grants...)
					with.decide(0, &r, &a)
					without.decide(0, &r, &b)
					if a.Allowed && !b.Allowed {
						t.Fatalf("seed %d, leg %d: %+v allows %v after a charge was given back, and not without that charge",
							seed, leg, limit, r.Takes)
					}
					if b.Allowed && !a.Allowed { // it may deny more; then this bucket goes on as if it had denied, too
						without["k"] = before
					}
				}
				for range random.IntN(5) {
					both()
				}
				charge := bucket.Request{At: now}
				charge.Add(bucket.Take{Key: "k", Limit: limit, Cost: 1 + random.Uint64N(5)})
				var charged bucket.Outcome
				if with.decide(0, &charge, &charged); !charged.Allowed {
					continue
				}
				for range random.IntN(5) {
					both()
				}
				back := bucket.Request{At: now}
				back.Add(bucket.Take{
					Key: "k", Limit: limit, Refund: charge.Takes[0].Cost, ChargedAt: charged.Decisions[0].ChargedAt,
				})
				with.decide(0, &back, new(bucket.Outcome))
				x, y := with["k"], without["k"]
				if x.Remaining(&limit, now) == y.Remaining(&limit, now) {
					full++
				}
				for range 10 {
					both()
				}
			}
			if full == 0 {
				t.Error("nothing was ever given back")
			}
		})
	}
}
