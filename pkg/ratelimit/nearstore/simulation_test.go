package nearstore_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

// server is a simulated Redis: it decides by Request.Decide over a map, with a clock of its own. It is meant for a
// synctest bubble, where its delays take no time.
type server struct {
	mu     sync.Mutex
	states map[string]bucket.State
	notes  map[string]int64 // when a refund made the bucket emptier
	ahead  time.Duration    // of its clock
	epoch  uint64
	begun  time.Time // the time of the last Suspect
	calls  int       // requests that it has decided
	units  int64     // that it has charged
	cut    bool      // answers show only the oldest grants of a log
}

// shownGrants is how many grants of a log an answer shows, of a server with cut.
const shownGrants = 2

func newServer() *server {
	return &server{states: map[string]bucket.State{}, notes: map[string]int64{}, epoch: 1}
}

// step lets the clock of the server step.
func (s *server) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// clock returns the time of the server.
func (s *server) clock() int64 { return time.Now().Add(s.ahead).UnixMicro() }

// lose drops all states. announced means that clients notice, as by another run id.
func (s *server) lose(announced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.states)
	clear(s.notes)
	if announced {
		s.epoch++
	}
}

// used returns the units in use of a bucket.
func (s *server) used(key string, l bucket.Limit) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[key]
	return state.Used(&l, s.clock())
}

// decide decides one request, as the script does.
func (s *server) decide(r *bucket.Request, o *bucket.Outcome) {
	s.calls++
	now := s.clock()
	if r.At != 0 {
		now = r.At
	}
	loaded, fates := make([]bucket.Loaded, len(r.Takes)), make([]bucket.Fate, len(r.Takes))
	for i, t := range r.Takes {
		loaded[i].State = s.states[t.Key]
		loaded[i].State = loaded[i].State.Clone()
		fates[i] = bucket.FloorUnsent
		if t.Floor != nil {
			fates[i] = bucket.FloorVoided
		}
		if note, ok := s.notes[t.Key]; t.Floor != nil && (!ok || note < t.Floor.At) {
			storetest.JoinFloor(t.Floor, &t.Limit, &loaded[i].State, now)
			s.states[t.Key], fates[i] = loaded[i].State.Clone(), bucket.FloorJoined
		} else if t.Floor != nil { // the note voids no holds
			holds := bucket.Floor{State: bucket.State{Holds: t.Floor.State.Holds}, Unsent: t.Floor.Unsent}
			storetest.JoinFloor(&holds, &t.Limit, &loaded[i].State, now)
			s.states[t.Key] = loaded[i].State.Clone()
		}
		if t.Refund > 0 {
			s.notes[t.Key] = now
		}
	}
	r.Decide(now, loaded, o)
	for i, t := range r.Takes {
		s.units += t.Charged(o.Decisions[i].Allowed, o.Allowed)
		seen := bucket.Seen{Reply: bucket.Reply{Clock: now}, Floor: fates[i]}
		if t.Limit.Requests == 0 {
			seen.Clock = 0
		} else {
			if loaded[i].Changed {
				s.states[t.Key] = loaded[i].State.Clone()
			}
			seen.State = loaded[i].State.Clone()
			if h := seen.State.Holds; h != nil { // Redis shows only the sum
				seen.State.Holds = &bucket.Holds{
					Others: bucket.SomeHolds{Units: h.Units(), Number: h.Number(), Until: h.Until()},
				}
			}
			if g := seen.State.Grants; s.cut && len(g) > shownGrants {
				seen.Cut = true
				rest := bucket.Grant{At: g[len(g)-1].At}
				for _, hidden := range g[shownGrants:] {
					rest.Cost += hidden.Cost
				}
				seen.State.Grants = append(g[:shownGrants:shownGrants], rest)
			}
		}
		o.Seen = append(o.Seen, seen)
	}
}

// fate is what happens to one call of a replica.
type fate struct {
	reach, back time.Duration // how long the request and the answer travel
	refused     bool          // it is certain that it does not run
	lost        bool          // the request never reaches the server
	unheard     bool          // the answer is lost
}

// link is the connection of a replica to the server.
type link struct {
	*server
	timeout time.Duration
	mu      sync.Mutex
	fates   []fate // of the next calls; afterwards, each is usual
	usual   fate
	inOrder bool // calls of the same fate arrive in the order in which they were sent, also at one time
	calls   int
}

// newLink returns a link on which nothing is lost.
func newLink(s *server) *link {
	return &link{server: s, timeout: 50 * time.Millisecond, usual: fate{reach: time.Millisecond, back: time.Millisecond}}
}

var errRefused = errors.New("connection refused")

func (l *link) fate() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.usual
	if len(l.fates) > 0 {
		f, l.fates = l.fates[0], l.fates[1:]
	}
	if l.calls++; l.inOrder {
		f.reach += time.Duration(l.calls)
	}
	return f
}

// Start implements nearstore.Shared.
func (l *link) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	f, sent := l.fate(), time.Now()
	if f.refused {
		for i := range outcomes {
			outcomes[i] = bucket.Outcome{Err: errRefused}
		}
		return
	}
	own := make([]bucket.Request, len(requests))
	for i, r := range requests {
		own[i] = bucket.Request{At: r.At, Takes: append([]bucket.Take(nil), r.Takes...)}
	}
	answers := make(chan []bucket.Outcome, 1)
	go func() {
		time.Sleep(f.reach)
		if f.lost {
			return
		}
		l.server.mu.Lock()
		results := make([]bucket.Outcome, len(own))
		for i := range own {
			l.decide(&own[i], &results[i])
		}
		l.server.mu.Unlock()
		time.Sleep(f.back)
		if !f.unheard {
			answers <- results
		}
	}()
	select {
	case results := <-answers:
		for i := range results {
			for k := range results[i].Seen {
				results[i].Seen[k].Sent, results[i].Seen[k].Received = sent, time.Now()
			}
			outcomes[i] = results[i]
		}
	case <-time.After(l.timeout):
		for i := range outcomes {
			outcomes[i] = bucket.Outcome{Err: ratelimit.ErrOutcomeUnknown}
		}
	}
}

// Epoch implements nearstore.Shared.
func (l *link) Epoch(*bucket.Take) uint64 {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	return l.epoch
}

// Suspect implements nearstore.Shared.
func (l *link) Suspect(*bucket.Take) {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	if time.Since(l.begun) >= time.Second {
		l.begun = time.Now()
		l.epoch++
	}
}

// replica is one instance of the service.
type replica struct {
	*nearstore.Store
	link *link // nil for a replica of several servers
}

func newReplica(t *testing.T, s *server, cfg nearstore.Config) *replica {
	t.Helper()
	l := newLink(s)
	r := newReplicaOf(t, l, cfg)
	r.link = l
	return r
}

// newReplicaOf returns a replica of any servers.
func newReplicaOf(t *testing.T, shared nearstore.Shared, cfg nearstore.Config) *replica {
	t.Helper()
	cfg.Shared = shared
	n, err := nearstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return &replica{Store: n}
}

// ask decides a request as the limiter does with the policy local.
func (r *replica) ask(takes ...bucket.Take) bucket.Outcome {
	requests, outcomes := make([]bucket.Request, 1), make([]bucket.Outcome, 1)
	for _, t := range takes {
		requests[0].Add(t)
	}
	ratelimit.Take(context.Background(), r, requests, outcomes)
	if err := outcomes[0].Err; err != nil {
		requests[0].Uncertain = errors.Is(err, ratelimit.ErrOutcomeUnknown)
		ratelimit.Take(context.Background(), r.Local(), requests, outcomes)
	}
	return outcomes[0]
}

// take asks for units of a bucket, one request each, and returns how many were admitted.
func (r *replica) take(key string, l bucket.Limit, requests int) (admitted int) {
	for range requests {
		if r.ask(bucket.Take{Key: key, Limit: l, Cost: 1}).Allowed {
			admitted++
		}
	}
	return admitted
}

// runs is the number of random runs of each property and algorithm.
var runs = testenv.Steps(50, 300)

// onlySeed repeats the runs of one seed. Goroutines that wake at one instant run in any order, so not all of them fail.
var onlySeed = flag.Uint64("seed", 0, "the seed of all random runs of the properties; 0 for a new one each")

// load is how many callers of a replica ask at once, and the most that one asks for.
type load struct{ callers, cost int }

func randomLoad(random *rand.Rand) load { return load{1 + 3*random.IntN(2), 1 + 2*random.IntN(2)} }

// onTheWire returns the most units that a replica can have on the wire.
func (o load) onTheWire() int64 { return int64(o.callers * o.cost) }

// most returns the most units that a replica admits without a loss of state. They are the limit, those of unknown
// outcome, and those that Redis has charged over the limit, because other takes had overtaken the catch-up.
func (r *replica) most(l bucket.Limit) int64 {
	stats := r.Stats()
	return l.Requests + int64(stats.Uncertain+stats.Minted)
}

// each runs a property for all algorithms that count, with random limits.
func each(t *testing.T, property func(*testing.T, *rand.Rand, bucket.Limit)) {
	eachOf(t, append(slices.Clone(bucket.Algorithms), bucket.CalendarWindow), runs, property)
}

// eachOf runs a property for some algorithms, with that many random limits each.
func eachOf(
	t *testing.T, algorithms []bucket.Algorithm, runs int, property func(*testing.T, *rand.Rand, bucket.Limit),
) {
	for _, algorithm := range algorithms {
		t.Run(fmt.Sprint(algorithm, uint8(algorithm)), func(t *testing.T) {
			for range runs {
				seed := cmp.Or(*onlySeed, rand.Uint64())
				synctest.Test(t, func(t *testing.T) {
					defer func() { // in the bubble: the test ends with it if it fails
						if t.Failed() {
							t.Logf("to repeat it: -run '%s' -seed %d", t.Name(), seed)
						}
					}()
					random := rand.New(rand.NewPCG(seed, 0))
					property(t, random, perDay(algorithm, 1+random.Int64N(12)))
				})
			}
		})
	}
}

// storm lets several callers of each replica ask for one bucket while calls meet random fates. It returns the admitted
// units, after Redis has answered again for a while.
func (o load) storm(random *rand.Rand, replicas []*replica, l bucket.Limit, event func()) int64 {
	var admitted atomic.Int64
	var all sync.WaitGroup
	for _, r := range replicas {
		for caller := range o.callers {
			own := rand.New(rand.NewPCG(random.Uint64(), uint64(caller)))
			all.Go(func() {
				for range 32 / o.callers {
					time.Sleep(time.Duration(own.IntN(40)) * time.Millisecond)
					cost := uint64(1 + own.IntN(o.cost))
					if r.ask(bucket.Take{Key: "k", Limit: l, Cost: cost}).Allowed {
						admitted.Add(int64(cost))
					}
				}
			})
		}
	}
	for range 20 {
		for _, r := range replicas {
			r.link.set(randomFate(random))
		}
		event()
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
	}
	for _, r := range replicas {
		r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
	}
	all.Wait()
	time.Sleep(2 * time.Second)
	for range 2 * l.Requests {
		for _, r := range replicas {
			if r.ask(bucket.Take{Key: "k", Limit: l, Cost: 1}).Allowed {
				admitted.Add(1)
			}
		}
	}
	return admitted.Load()
}

func randomFate(random *rand.Rand) fate {
	f := fate{
		reach: time.Duration(random.IntN(5)) * time.Millisecond, back: time.Duration(random.IntN(5)) * time.Millisecond,
	}
	switch random.IntN(6) {
	case 0:
		f.refused = true
	case 1:
		f.lost = true
	case 2:
		f.unheard = true
	case 3:
		f.reach = time.Duration(random.IntN(100)) * time.Millisecond
	}
	return f
}

func (l *link) set(f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usual = f
}

// perDay returns a limit that does not refill while a test runs.
func perDay(a bucket.Algorithm, n int64) bucket.Limit {
	l := bucket.Limit{Algorithm: a, Requests: n, Burst: n, Window: 86_400_000_000}
	if a == bucket.Concurrency {
		l = bucket.Limit{Algorithm: a, Requests: n}
	}
	if a == bucket.CalendarWindow {
		// The clock begins in 2000, and may step back.
		l.Calendar = bucket.NewCalendar("year", time.FixedZone("here", 40*3600))
	}
	return l
}
