package nearstore_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// withHolds are the algorithms whose limits may have holds.
var withHolds = append(slices.Clone(bucket.Algorithms), bucket.Concurrency)

// eachHeld runs a property for all algorithms with random limits that have holds of 2 s.
func eachHeld(t *testing.T, property func(*testing.T, *rand.Rand, bucket.Take)) {
	eachOf(t, append(slices.Clone(withHolds), bucket.CalendarWindow), testenv.Steps(15, 300),
		func(t *testing.T, random *rand.Rand, l bucket.Limit) {
			property(t, random, heldTake(l, l.Algorithm == bucket.Concurrency || random.IntN(2) == 0))
		})
}

// holdTTL is how long the holds of these tests live.
const holdTTL = 2 * time.Second

// heldTake returns a take that asks nothing of a bucket with holds.
func heldTake(l bucket.Limit, release bool) bucket.Take {
	return bucket.Take{Key: "k", Limit: l, Hold: &bucket.Hold{TTL: holdTTL.Microseconds(), Most: 1_000, Release: release}}
}

// holdID returns an id.
func holdID(n uint64) (id bucket.HoldID) {
	binary.LittleEndian.PutUint64(id[:], n)
	return id
}

// reserving returns the take as one that reserves.
func reserving(t bucket.Take, id, cost uint64) bucket.Take {
	h := *t.Hold
	h.Reserves = []bucket.HoldCost{{ID: holdID(id), Cost: cost}}
	t.Hold = &h
	return t
}

// settling returns the take as one that settles or, with a time, undoes.
func settling(t bucket.Take, id, cost uint64, expires int64) bucket.Take {
	h := *t.Hold
	h.Settles = []bucket.HoldCost{{ID: holdID(id), Cost: cost, Expires: expires}}
	t.Hold = &h
	return t
}

// held returns the units and the number of the holds that the server has, by its clock.
func (s *server) held(t bucket.Take) (units, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[t.Key]
	for _, c := range state.Holds.Live() {
		if c.Expires > s.clock() {
			units, number = units+int64(c.Cost), number+1
		}
	}
	return units, number
}

type liveHold struct {
	id    uint64
	owner *replica
}

// callers reserve and settle units of one bucket.
type callers struct {
	take     bucket.Take
	replicas []*replica

	mu   sync.Mutex
	next uint64
	// live are the holds without an end, and the replicas that have reserved them.
	live []liveHold
	// used are the units that were reserved, less what a settlement, an undo or an expiry has given back since. most were
	// in use at one time.
	used, most int64
	// settled is the sum of all settlements.
	settled int64
}

// count counts units that are in use from now on. A caller counts units after the answer, and uncounts them before it
// asks to end them, so at no time are more in use than counted here.
func (c *callers) count(units int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used += units
	c.most = max(c.most, c.used)
}

// check fails if more units were in use at one time than the limit and those that the replicas count as uncertain and
// minted, and a few others.
func (c *callers) check(t *testing.T, others int64) {
	t.Helper()
	most := c.take.Limit.Capacity() + others
	for _, r := range c.replicas {
		most += r.most(c.take.Limit) - c.take.Limit.Requests
	}
	if c.most > most {
		t.Errorf("%d units were in use, want at most %d of %d, %+v", c.most, most, c.take.Limit.Capacity(),
			c.replicas[0].Stats())
	}
}

// call reserves units, and ends the hold in one of the ways in which it can end. It reports whether it was admitted.
func (c *callers) call(random *rand.Rand) bool {
	c.mu.Lock()
	c.next++
	id, cost := c.next, 1+random.Int64N(3)
	c.mu.Unlock()
	any := func() *replica {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.replicas[random.IntN(len(c.replicas))]
	}
	o := any().ask(reserving(c.take, id, uint64(cost)))
	if !o.Allowed {
		return false
	}
	c.count(cost)
	until := o.Decisions[0].Held.Until
	time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	back, end := cost, settling(c.take, id, 0, until)
	switch random.IntN(4) {
	case 0: // the caller dies
		if c.take.Hold.Release {
			time.Sleep(time.Until(time.UnixMicro(until)))
			c.count(-cost)
		}
		return true
	case 1: // undone
	default:
		real := random.Int64N(cost + 1)
		end = settling(c.take, id, uint64(real), 0)
		c.mu.Lock()
		c.settled += real
		c.mu.Unlock()
		if c.take.Limit.Algorithm != bucket.Concurrency {
			back -= real
		}
	}
	c.count(-back)
	any().ask(end)
	return true
}

// storm lets several callers call at once, while calls to Redis meet fates.
func (c *callers) storm(random *rand.Rand, event func()) {
	var all sync.WaitGroup
	for range 4 {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		all.Go(func() {
			for range 12 {
				time.Sleep(time.Duration(own.IntN(60)) * time.Millisecond)
				seed := own.Uint64()
				all.Go(func() { c.call(rand.New(rand.NewPCG(seed, 1))) })
			}
		})
	}
	for range 20 {
		event()
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
	}
	for _, r := range c.replicas {
		r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
	}
	all.Wait()
	time.Sleep(2*time.Second + holdTTL)
}

// fill reserves one unit at a time, never to settle it, until no replica admits one.
func (c *callers) fill() (admitted int64) {
	for range 2*c.take.Limit.Capacity() + 10 {
		for _, r := range c.replicas {
			c.next++
			if r.ask(reserving(c.take, c.next, 1)).Allowed {
				c.count(1)
				c.live = append(c.live, liveHold{c.next, r})
				admitted++
			}
		}
	}
	return admitted
}

// TestHoldsOfOneReplica runs one replica through faults of all kinds, without a loss of state, while callers settle,
// undo and die. No more than the limit is ever in use, but for units of unknown outcome. A ttl later, what is released
// is free.
func TestHoldsOfOneReplica(t *testing.T) {
	t.Parallel()
	eachHeld(t, func(t *testing.T, random *rand.Rand, take bucket.Take) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		c := callers{take: take, replicas: []*replica{r}}
		c.storm(random, func() {
			r.SetReplicas(1 + random.IntN(3))
			r.link.set(randomFate(random))
		})
		if got := c.fill(); take.Limit.Algorithm == bucket.Concurrency && got != take.Limit.Requests {
			t.Errorf("%d units are free a ttl after the last hold, want all %d", got, take.Limit.Requests)
		}
		c.check(t, 0)
		_ = r.Close()
	})
}

// TestHoldsOfAnOutage has Redis refuse all calls at times, so that no outcome is unknown. Redis then holds exactly what
// was settled and what has expired, each once, and no hold is left.
func TestHoldsOfAnOutage(t *testing.T) {
	t.Parallel()
	eachHeld(t, func(t *testing.T, random *rand.Rand, take bucket.Take) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		r.link.inOrder = true
		c := callers{take: take, replicas: []*replica{r}}
		c.storm(random, func() {
			r.link.set(fate{reach: time.Millisecond, back: time.Millisecond, refused: random.IntN(2) == 0})
		})
		r.ask(take) // ends what has expired
		time.Sleep(time.Second)
		units, number := s.held(take)
		if used := s.used("k", take.Limit); used != c.used || number != 0 || r.Stats().Owing != 0 {
			t.Errorf("Redis holds %d units, and %d in %d holds, %d buckets are owing; want %d and none", used, units, number,
				r.Stats().Owing, c.used)
		}
		c.check(t, 0)
		_ = r.Close()
	})
}

// TestHoldsOfSeveralReplicas lets replicas that have all seen the last hold reserve without Redis. They divide what is
// free, and settle some. Once Redis knows the others, any of them settles those. Redis is charged for exactly that, and
// nothing stays held.
func TestHoldsOfSeveralReplicas(t *testing.T) {
	t.Parallel()
	eachHeld(t, func(t *testing.T, random *rand.Rand, take bucket.Take) {
		s, n := newServer(), 1+random.IntN(3)
		take.Limit.Requests, take.Limit.Burst = 10*take.Limit.Requests, 10*take.Limit.Burst
		if take.Limit.Algorithm == bucket.Concurrency {
			take.Limit.Burst = 0
		}
		c := callers{take: take}
		for range n {
			r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
			r.SetReplicas(n)
			c.replicas = append(c.replicas, r)
		}
		for range random.IntN(4) {
			c.next++
			if r := c.replicas[random.IntN(n)]; r.ask(reserving(take, c.next, 1)).Allowed {
				c.count(1)
				c.live = append(c.live, liveHold{c.next, r})
			}
		}
		for _, r := range c.replicas {
			r.ask(take)
			r.link.set(fate{refused: true})
		}
		admitted := c.used + c.fill()
		if admitted < take.Limit.Requests {
			t.Errorf("%d admitted, want the %d of the limit", admitted, take.Limit.Requests)
		}
		c.check(t, int64(n-1))
		settled := int64(0)
		settle := func(by *replica, id uint64) {
			cost := random.Int64N(2)
			settled += cost
			by.ask(settling(take, id, uint64(cost), 0))
		}
		random.Shuffle(len(c.live), func(i, j int) { c.live[i], c.live[j] = c.live[j], c.live[i] })
		rest := c.live[len(c.live)/2:]
		for _, h := range c.live[:len(c.live)/2] {
			settle(h.owner, h.id)
		}
		for _, r := range c.replicas {
			r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
		}
		for _, r := range c.replicas {
			r.ask(take)
			time.Sleep(100 * time.Millisecond)
		}
		for _, h := range rest {
			settle(c.replicas[random.IntN(n)], h.id)
		}
		if _, number := s.held(take); number > 0 {
			t.Errorf("%d holds are left", number)
		}
		if used := s.used("k", take.Limit); take.Limit.Algorithm != bucket.Concurrency &&
			used != min(settled, 2*take.Limit.Requests) {
			t.Errorf("Redis has charged %d units, want the %d that were settled", used, settled)
		}
		for _, r := range c.replicas {
			_ = r.Close()
		}
	})
}

// TestHoldsAfterALoss empties Redis, so that clients notice, while callers hold units. A replica restores its own.
// Each loss mints at most the units that are on the wire, and those of calls that overtake the floor.
func TestHoldsAfterALoss(t *testing.T) {
	t.Parallel()
	eachHeld(t, func(t *testing.T, random *rand.Rand, take bucket.Take) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		c, losses := callers{take: take, replicas: []*replica{r}}, int64(0)
		c.storm(random, func() {
			r.link.set(randomFate(random))
			if random.IntN(10) == 0 {
				losses++
				s.lose(true)
			}
		})
		c.fill()
		c.check(t, losses*4*3) // as many callers, of as many units
		_ = r.Close()
	})
}

// TestHoldsOfKilledReplicas kills replicas (kill -9) while Redis decides. Their holds stay in Redis until they expire.
// A unit passes again only where a reserve of unknown outcome was admitted.
func TestHoldsOfKilledReplicas(t *testing.T) {
	t.Parallel()
	eachHeld(t, func(t *testing.T, random *rand.Rand, take bucket.Take) {
		s := newServer()
		c := callers{take: take}
		c.replicas = append(c.replicas, newReplica(t, s, nearstore.Config{}), newReplica(t, s, nearstore.Config{}))
		c.storm(random, func() {
			if random.IntN(4) == 0 {
				i := random.IntN(len(c.replicas))
				killed := c.replicas[i]
				c.mu.Lock()
				c.replicas[i] = newReplica(t, s, nearstore.Config{})
				c.mu.Unlock()
				_ = killed.Close()
			}
		})
		if got := c.fill(); take.Limit.Algorithm == bucket.Concurrency && got != take.Limit.Requests {
			t.Errorf("%d units are free a ttl after the last hold, want all %d", got, take.Limit.Requests)
		}
		c.check(t, 0)
		for _, r := range c.replicas {
			_ = r.Close()
		}
	})
}

// TestNoSettlementIsChargedTwice runs several replicas through faults and losses of all kinds. Any of them settles.
// Redis is never charged more than what was settled, and units of unknown outcome.
func TestNoSettlementIsChargedTwice(t *testing.T) {
	t.Parallel()
	eachHeld(t, func(t *testing.T, random *rand.Rand, take bucket.Take) {
		if !take.Hold.Release {
			return // a hold that expires charges, too
		}
		s, c := newServer(), callers{take: take}
		for range 1 + random.IntN(3) {
			c.replicas = append(c.replicas, newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0}))
		}
		c.storm(random, func() {
			c.replicas[0].SetReplicas(1 + random.IntN(5))
			for _, r := range c.replicas {
				r.link.set(randomFate(random))
			}
			if random.IntN(10) == 0 {
				s.lose(random.IntN(2) == 0)
			}
		})
		most := c.settled
		for _, r := range c.replicas {
			r.ask(take)
			most += int64(r.Stats().Uncertain)
			_ = r.Close()
		}
		if used := s.used("k", take.Limit); used > most {
			t.Errorf("Redis has charged %d units, want at most %d of %d that were settled", used, most, c.settled)
		}
	})
}

// eachWithHolds runs a test in a bubble for each algorithm, with a limit of 10. Holds that expire are charged or
// released.
func eachWithHolds(
	t *testing.T, cfg nearstore.Config, test func(t *testing.T, s *server, a, b *replica, take bucket.Take),
) {
	for _, algorithm := range withHolds {
		for _, release := range []bool{true, false} {
			if !release && algorithm == bucket.Concurrency {
				continue
			}
			t.Run(fmt.Sprint(algorithm, " release ", release), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					a, b := newReplica(t, s, cfg), newReplica(t, s, cfg)
					test(t, s, a, b, heldTake(perDay(algorithm, 10), release))
					_, _ = a.Close(), b.Close()
				})
			})
		}
	}
}

// reserve reserves units for an id, and returns when the hold expires, 0 for none.
func (r *replica) reserve(t bucket.Take, id, cost uint64) int64 {
	return r.ask(reserving(t, id, cost)).Decisions[0].Held.Until
}

// left returns how many units remain, by the replica without Redis.
func (r *replica) left(t bucket.Take) int64 {
	r.link.set(fate{refused: true})
	return r.ask(t).Decisions[0].Remaining
}

// TestOthersHolds has a replica cut off that knows its own holds by id, and the sum of the others.
func TestOthersHolds(t *testing.T) {
	eachWithHolds(t, nearstore.Config{}, func(t *testing.T, _ *server, a, b *replica, take bucket.Take) {
		want := func(what string, left int64) {
			t.Helper()
			if got := a.left(take); got != left {
				t.Errorf("%s: %d remain of 10, want %d", what, got, left)
			}
		}
		a.reserve(take, 1, 3)
		b.reserve(take, 2, 2)
		b.reserve(take, 3, 1)
		a.ask(take)
		want("3 own units, 3 of others", 4)
		a.ask(settling(take, 1, 0, 0))
		want("its own hold has ended", 7)
		a.ask(settling(take, 2, 0, 0))
		want("one of two holds of unequal units has ended", 7)
		a.ask(settling(take, 3, 0, 0))
		want("the last one has ended", 10)
	})
	eachWithHolds(t, nearstore.Config{}, func(t *testing.T, _ *server, a, b *replica, take bucket.Take) {
		for id := range uint64(4) {
			b.reserve(take, id, 1)
		}
		a.ask(take)
		before := a.left(take)
		a.ask(settling(take, 3, 0, 0))
		if got := a.left(take); before != 6 || got != 7 {
			t.Errorf("%d and then %d remain of 10, want 6 and, after one of 4 units has ended, 7", before, got)
		}
		time.Sleep(holdTTL + time.Millisecond)
		charged := int64(3)
		if take.Hold.Release {
			charged = 0
		}
		if got := a.left(take); got != 10-charged {
			t.Errorf("%d remain after the others' holds have expired, want %d", got, 10-charged)
		}
		a.link.set(fate{})
		a.ask(take) // ends the hold that was settled before Redis charges those that have expired
		if got := a.left(take); got != 10-charged {
			t.Errorf("%d remain once Redis has answered, want %d", got, 10-charged)
		}
	})
}

// TestHoldsReachRedis reserves, settles and undoes without Redis. The next take brings all to Redis, also if
// answers to earlier ones are lost.
func TestHoldsReachRedis(t *testing.T) {
	eachWithHolds(t, nearstore.Config{}, func(t *testing.T, s *server, a, _ *replica, take bucket.Take) {
		undone := a.reserve(take, 1, 1)
		a.reserve(take, 2, 1)
		a.reserve(take, 3, 1)
		a.link.set(fate{refused: true})
		a.reserve(take, 4, 1)
		second := a.reserve(take, 5, 2)
		a.ask(settling(take, 1, 0, undone))
		a.ask(settling(take, 2, 1, 0))
		a.ask(settling(take, 5, 0, second))
		for range 3 {
			a.link.set(fate{unheard: true})
			a.ask(take)
		}
		a.link.set(fate{})
		a.ask(take)
		if units, number := s.held(take); units != 2 || number != 2 {
			t.Errorf("Redis has %d units in %d holds, want those of 3 and 4", units, number)
		}
		for _, id := range []uint64{3, 4} {
			if d := a.ask(settling(take, id, 1, 0)).Decisions[0]; d.Held.Settled != 1 {
				t.Errorf("the settlement of %d found no hold: %+v", id, d)
			}
		}
		time.Sleep(holdTTL + time.Second)
		a.ask(take)
		want := int64(3)
		if take.Limit.Algorithm == bucket.Concurrency {
			want = 0
		}
		// The catch-up is of unknown outcome: Redis has charged it, or a floor restores it, except in a log.
		if used := s.used("k", take.Limit); used != want {
			t.Errorf("Redis has charged %d units, want the %d that were settled", used, want)
		}
	})
}

// TestOwnHoldsSurviveALoss empties Redis. The next take of a replica restores the holds that it has reserved.
func TestOwnHoldsSurviveALoss(t *testing.T) {
	eachWithHolds(t, nearstore.Config{}, func(t *testing.T, s *server, a, b *replica, take bucket.Take) {
		a.reserve(take, 1, 3)
		b.reserve(take, 2, 4)
		s.lose(true)
		a.ask(take)
		b.ask(take)
		if units, number := s.held(take); units != 7 || number != 2 {
			t.Errorf("Redis has %d units in %d holds, want 7 in 2", units, number)
		}
		for id, r := range map[uint64]*replica{1: b, 2: a} {
			if d := r.ask(settling(take, id, 0, 0)).Decisions[0]; d.Held.Settled != 1 {
				t.Errorf("the settlement of %d found no hold: %+v", id, d)
			}
		}
	})
}

// TestReserveOfUnknownOutcome loses the answer to a reserve. Without Redis, the replica counts it with the holds of
// others. It does not send it again, or Redis could have it twice.
func TestReserveOfUnknownOutcome(t *testing.T) {
	eachWithHolds(t, nearstore.Config{}, func(t *testing.T, s *server, a, _ *replica, take bucket.Take) {
		a.link.set(fate{reach: time.Millisecond, unheard: true})
		a.reserve(take, 1, 3)
		if got := a.left(take); got != 7 {
			t.Errorf("%d remain of 10, want 7", got)
		}
		a.link.set(fate{})
		a.ask(take)
		if units, number := s.held(take); units != 3 || number != 1 {
			t.Errorf("Redis has %d units in %d holds, want 3 in 1", units, number)
		}
		a.ask(settling(take, 1, 0, 0))
		if units, _ := s.held(take); units != 0 {
			t.Errorf("Redis still has %d units", units)
		}
	})
}

// TestHoldsAreBounded remembers at most 5 holds by id. Further ones are part of the sum, and Redis alone ends them. The
// bound is free again when the buckets are forgotten.
func TestHoldsAreBounded(t *testing.T) {
	cfg := nearstore.Config{MaxHolds: 5, MaxBuckets: 1}
	eachWithHolds(t, cfg, func(t *testing.T, s *server, a, _ *replica, take bucket.Take) {
		for id := range uint64(8) {
			a.reserve(take, id, 1)
		}
		if got := a.left(take); got != 2 {
			t.Errorf("%d remain of 10, want 2", got)
		}
		if a.ask(reserving(take, 9, 1)).Allowed {
			t.Error("a reserve without Redis was admitted beyond the bound")
		}
		if got := a.Stats().Memory.FullHolds; got != 1 {
			t.Errorf("%d reserves found no room, want 1", got)
		}
		for id := range uint64(8) {
			a.ask(settling(take, id, 0, 0))
		}
		if got := a.left(take); got != 10 {
			t.Errorf("%d remain of 10 after all settlements", got)
		}
		a.link.set(fate{})
		for i := range 3 {
			take.Key = fmt.Sprint("other ", i) // it takes the place of the one before
			for id := range uint64(5) {
				a.reserve(take, id, 1)
			}
		}
		a.link.set(fate{refused: true})
		take.Key = "last"
		if a.reserve(take, 9, 1) == 0 {
			t.Error("holds of forgotten buckets count")
		}
	})
}

// TestFloorHasTheNewestHolds loses more holds than a floor has: those that began last come back, because another
// replica has more probably settled the others.
func TestFloorHasTheNewestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := newReplica(t, s, nearstore.Config{})
		take := heldTake(perDay(bucket.FixedWindow, 10_000), false)
		take.Hold.Most, take.Hold.TTL = 10_000, time.Minute.Microseconds()
		for id := range uint64(1_200) {
			a.reserve(take, id, 1)
			time.Sleep(time.Millisecond)
		}
		s.lose(true)
		a.ask(take)
		live := s.states[take.Key].Holds.Live()
		if len(live) != 1_000 || live[0].ID != holdID(200) {
			t.Errorf("%d holds are restored, the first of them is %v, want 1000 from %v on", len(live), live[0].ID, holdID(200))
		}
		_ = a.Close()
	})
}
