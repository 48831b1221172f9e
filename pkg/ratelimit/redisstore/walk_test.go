package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

// walkSteps is the length of the walk of each algorithm.
var walkSteps = testenv.Steps(8_000, 24_000)

const (
	callSteps = 200                   // steps that go to Redis in one call
	year2100  = 4_102_444_800_000_000 // until then, a limit that Check accepts is exact
)

// TestWalk lets Go and Lua decide the same random requests, and compares every decision and every state. Most steps of
// time, costs and limits are at the edges, where errors are likely.
func TestWalk(t *testing.T) {
	server := testenv.Redis(t)
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			newWalk(t, single(t, server), algorithm).run(t, walkSteps)
		})
	}
	t.Run("calendar", func(t *testing.T) {
		t.Parallel()
		newWalk(t, single(t, server), bucket.CalendarWindow).run(t, walkSteps)
	})
	t.Run("concurrency", func(t *testing.T) {
		t.Parallel()
		newWalk(t, single(t, server), bucket.Concurrency).run(t, walkSteps)
	})
	t.Run("mixed", func(t *testing.T) {
		t.Parallel()
		newWalk(t, single(t, server), allAlgorithms()...).run(t, walkSteps)
	})
}

func allAlgorithms() []bucket.Algorithm {
	return append(slices.Clone(bucket.Algorithms), bucket.Concurrency, bucket.CalendarWindow)
}

// TestWalkModes walks with the stores of all modes.
func TestWalkModes(t *testing.T) {
	server, sentinels, cluster := testenv.Redis(t), testenv.Sentinels(t), testenv.Cluster(t)
	nodes := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(cluster.Addrs(), ",")})
	t.Cleanup(func() { _ = nodes.Close() })
	in := func(s storetest.Store, c redis.Cmdable, prefix string) lua {
		return lua{
			s, func(key string) *redis.StringCmd { return c.Get(t.Context(), prefix+key) },
			func(key string) *redis.MapStringStringCmd {
				return c.HGetAll(t.Context(), redisstore.HoldsOf("", prefix+key))
			},
		}
	}
	for name, l := range map[string]lua{
		"single": in(open(t, redisstore.Config{URL: server.Addr}), dial(t, server.Addr), ""),
		"sentinel": in(open(t, redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs()}),
			dial(t, sentinels.Master.Addr), ""),
		"cluster": in(oneSlot{openCluster(t, cluster)}, nodes, slotTag),
	} {
		t.Run(name, func(t *testing.T) {
			newWalk(t, l, allAlgorithms()...).run(t, walkSteps/4)
		})
	}
}

// TestWalkAtTheBounds walks with the largest limits that Check accepts.
func TestWalkAtTheBounds(t *testing.T) {
	server := testenv.Redis(t)
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			most := algorithm.Most()
			w := newWalk(t, single(t, server), algorithm)
			for _, window := range []int64{
				1, 999_999, 86_400_000_000, 365 * 86_400_000_000, bucket.MaxWindow - 1, bucket.MaxWindow,
			} {
				for _, requests := range []int64{1, 2, most - 1, most} {
					l := bucket.Limit{Algorithm: algorithm, Requests: requests, Window: window}
					if l.Burst = mostBurst(l); algorithm.HasBurst() && l.Burst == 0 {
						continue
					}
					w.now = 1_700_000_000_000_000
					w.buckets = []bucket.Take{{Key: fmt.Sprintf("bounds/%d/%d/%d", w.seed, requests, window), Limit: l}}
					w.call(t)
				}
			}
		})
	}
}

// TestWalkLongLog walks with logs of hundreds of entries. An answer holds only the first of them.
func TestWalkLongLog(t *testing.T) {
	w := newWalk(t, single(t, testenv.Redis(t)), bucket.SlidingWindowLog)
	w.small = true
	for leg := range 5 {
		w.now = 1_700_000_000_000_000
		l := bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 50 + w.random.Int64N(500), Window: 60_000_000}
		w.buckets = []bucket.Take{{Key: fmt.Sprintf("long/%d/%d", w.seed, leg), Limit: l}}
		for range 10 {
			w.call(t)
		}
	}
}

// TestWalkOfTheClock walks at the time of Redis, at which Lua also decides when buckets expire.
func TestWalkOfTheClock(t *testing.T) {
	w := newWalk(t, single(t, testenv.Redis(t)), bucket.Algorithms...)
	w.clock = true
	for leg := range 60 {
		w.buckets = nil
		for i := range 1 + w.random.IntN(4) {
			algorithm := w.algorithms[w.random.IntN(len(w.algorithms))]
			window := w.pick(1, 999, 10_000, 100_000, 1_000_003, 3_600_000_000)
			key := fmt.Sprintf("clock/%d/%d/%d", w.seed, leg, i)
			b := bucket.Take{Key: key, Limit: w.limit(algorithm, window)}
			if leg%3 == 0 {
				b.Hold = w.terms(algorithm)
			}
			w.buckets = append(w.buckets, b)
		}
		for range 3 {
			w.call(t)
		}
	}
}

// calendarZones have midnights that do not exist, or exist twice, and offsets of a part of an hour.
var calendarZones = []string{"UTC", "Europe/Berlin", "America/Havana", "Atlantic/Azores", "America/Santiago",
	"Australia/Lord_Howe", "Asia/Beirut", "Africa/Cairo"}

// walk is a random sequence of requests over time to a few buckets, whose limits change.
type walk struct {
	random     *rand.Rand
	seed       uint64
	algorithms []bucket.Algorithm
	lua        lua
	states     map[string]bucket.State
	past       map[string][]bucket.Floor // what answers have shown of each bucket
	restored   map[string]bool           // the buckets of which a floor has had holds
	notes      map[string]refundNote

	small    bool // most steps and costs are small
	clock    bool // at the time of Redis
	now      int64
	leg      int
	buckets  []bucket.Take // Key, Limit and the terms of Hold only
	calendar *bucket.Calendar
	reserved map[string][]bucket.HoldCost // what was asked to be held in each bucket
}

// refundNote is what the note of a bucket has: the time of the last refund, and until when it matters.
type refundNote struct{ clock, till int64 }

// lua is what decides in Lua, and how to read the value of a bucket, and its holds.
type lua struct {
	storetest.Store
	stored func(key string) *redis.StringCmd
	held   func(key string) *redis.MapStringStringCmd
}

// single is the script alone, in one Redis.
func single(t *testing.T, server *testenv.RedisServer) lua {
	script := newBare(t, server.Addr)
	return lua{
		script, func(key string) *redis.StringCmd { return script.client.Get(t.Context(), key) },
		func(key string) *redis.MapStringStringCmd { return script.client.HGetAll(t.Context(), "holds:"+key) },
	}
}

func newWalk(t *testing.T, l lua, algorithms ...bucket.Algorithm) *walk {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	return &walk{
		random: rand.New(rand.NewPCG(seed, uint64(algorithms[0]))), seed: seed, algorithms: algorithms,
		states: map[string]bucket.State{}, past: map[string][]bucket.Floor{}, restored: map[string]bool{},
		notes: map[string]refundNote{}, lua: l,
		reserved: map[string][]bucket.HoldCost{},
	}
}

func (w *walk) run(t *testing.T, steps int) {
	t.Helper()
	for range steps / callSteps {
		w.start()
		w.call(t)
	}
}

// start sometimes begins a leg with new buckets and limits; otherwise the walk goes on with the current ones.
func (w *walk) start() {
	if w.leg++; w.leg%3 != 1 {
		return
	}
	w.now = 1_700_000_000_000_000 + w.random.Int64N(1_000_000_000_000)
	w.buckets, w.reserved = nil, map[string][]bucket.HoldCost{}
	window, holding := w.window(), w.random.IntN(3) == 0
	if slices.Contains(w.algorithms, bucket.CalendarWindow) { // near a window in which an offset may change
		unit := w.random.IntN(len(bucket.CalendarUnits))
		zone := calendarZones[w.random.IntN(len(calendarZones))]
		w.calendar, _ = bucket.CalendarNamed(bucket.CalendarUnits[unit] + "@" + zone)
		window = []int64{86_400_000_000, 7 * 86_400_000_000, 30 * 86_400_000_000, 365 * 86_400_000_000}[unit]
		year, month := 2024+w.random.IntN(9), time.Month(w.pick(3, 4, 9, 10, 11))
		w.now = time.Date(year, month, 1+w.random.IntN(31), 0, 0, 0, 0, time.UTC).UnixMicro()
	}
	for i := range 1 + w.random.IntN(4) {
		algorithm := w.algorithms[w.random.IntN(len(w.algorithms))]
		key := fmt.Sprintf("walk/%d/%s/%d/%d", w.seed, algorithm, w.leg, i)
		b := bucket.Take{Key: key, Limit: w.limit(algorithm, window)}
		if holding || algorithm == bucket.Concurrency {
			b.Hold = w.terms(algorithm)
		}
		w.buckets = append(w.buckets, b)
	}
}

// terms returns random terms of holds.
func (w *walk) terms(algorithm bucket.Algorithm) *bucket.Hold {
	return &bucket.Hold{
		TTL:     w.pick(1, 10, 1000, 1_000_000, 60_000_000, 600_000_000, 86_400_000_000, 1+w.random.Int64N(10_000_000)),
		Most:    w.pick(1, 2, 3, 10, 1000),
		Release: algorithm == bucket.Concurrency || w.random.IntN(3) == 0,
	}
}

func (w *walk) window() int64 {
	return w.pick(1, 10, 999, 1_000_000, 1_000_003, 60_000_000, 3_600_000_000, 86_400_000_000, 30*86_400_000_000,
		1+w.random.Int64N(100_000_000), 1+w.random.Int64N(365*86_400_000_000))
}

// limit returns a random limit that Check accepts.
func (w *walk) limit(algorithm bucket.Algorithm, window int64) bucket.Limit {
	for {
		most := algorithm.Most()
		l := bucket.Limit{
			Algorithm: algorithm,
			Window:    window,
			Requests:  w.pick(1, 2, 3, 7, 10, 100, 1000, most, most-1, 1+w.random.Int64N(20), 1+w.random.Int64N(most)),
		}
		if w.random.IntN(40) == 0 {
			l.Requests = 0
		}
		switch algorithm {
		case bucket.CalendarWindow:
			l.Calendar = w.calendar
		case bucket.Concurrency:
			l.Window = 0
		}
		l.Burst = w.pick(l.Requests, 1, 2, 5, 10*l.Requests, 1+w.random.Int64N(bucket.MaxRequests), mostBurst(l))
		if l.Check() == nil {
			return l
		}
	}
}

// mostBurst is the largest burst that Check accepts, 0 for none.
func mostBurst(l bucket.Limit) int64 {
	return int64(sort.Search(bucket.MaxRequests, func(n int) bool {
		l.Burst = int64(n) + 1
		return l.Check() != nil
	}))
}

// call makes the next steps, in Lua with one call, in Go one by one, and compares the decisions.
func (w *walk) call(t *testing.T) {
	t.Helper()
	batch, outcomes := make([]bucket.Request, callSteps), make([]bucket.Outcome, callSteps)
	for i := range batch {
		batch[i] = w.step()
	}
	ratelimit.Take(t.Context(), w.lua, batch, outcomes)
	if w.clock {
		w.readClock(batch, outcomes)
	}
	for i, got := range outcomes {
		before, twin, fates := w.decide(&batch[i])
		if got.Err != nil {
			t.Fatalf("seed %d, leg %d, step %d: %v", w.seed, w.leg, i, got.Err)
		}
		shown := got.Seen
		got.Seen = nil
		for k := range got.Decisions { // in Redis, only an upper bound of the latest expiry is known
			if a, b := &twin.Decisions[k], &got.Decisions[k]; a.Held != nil && a.ExpireAt <= b.ExpireAt {
				a.ExpireAt = b.ExpireAt
			}
		}
		if diff := cmp.Diff(twin, got, cmpopts.IgnoreUnexported(bucket.Held{})); diff != "" {
			for k := range before {
				t.Logf("holds before: %v, asked: %+v", before[k].Holds.Live(), batch[i].Takes[k].Hold)
			}
			t.Fatalf("seed %d, leg %d, step %d (-Go +Lua):\n%s\nstates before: %+v\nrequest: %+v\nfloors: %s",
				w.seed, w.leg, i, diff, before, batch[i], floors(&batch[i]))
		}
		w.compareSeen(t, &batch[i], shown, fates)
	}
	w.compareStored(t)
}

// readClock moves a batch to the time at which Redis has decided it.
func (w *walk) readClock(batch []bucket.Request, outcomes []bucket.Outcome) {
	for _, o := range outcomes {
		for _, seen := range o.Seen {
			w.now = max(w.now, seen.Clock) // it is 0 for a closed bucket
		}
	}
	for i := range batch {
		batch[i].At = w.now
	}
}

// compareSeen compares what an answer has shown with the states in Go, all at the time of the request.
func (w *walk) compareSeen(t *testing.T, r *bucket.Request, shown []bucket.Seen, fates []bucket.Fate) {
	t.Helper()
	if len(shown) != len(r.Takes) {
		t.Fatalf("seed %d: %d takes show %d buckets", w.seed, len(r.Takes), len(shown))
	}
	for i, take := range r.Takes {
		got, want := shown[i], w.states[take.Key]
		if got.Floor != fates[i] {
			t.Fatalf("seed %d: the floor of %+v, which is %+v, has the fate %d, want %d",
				w.seed, take, take.Floor, got.Floor, fates[i])
		}
		if take.Limit.Requests == 0 {
			closed := bucket.Seen{Reply: bucket.Reply{Sent: got.Sent, Received: got.Received}, State: got.State}
			if diff := cmp.Diff(closed, got); diff != "" {
				t.Fatalf("seed %d: a closed bucket was shown (-want +got):\n%s", w.seed, diff)
			}
			continue
		}
		if got.Clock != r.At || got.Received.Before(got.Sent) {
			t.Fatalf("seed %d: the bucket of %+v was shown at %d, sent %v, received %v, want at %d",
				w.seed, take, got.Clock, got.Sent, got.Received, r.At)
		}
		want = clone(want)
		want.Remaining(&take.Limit, r.At) // brings it to the time
		w.compareSums(t, &take, want.Holds, got.State.Holds)
		if got.Cut {
			want = cutAs(want, got.State.Grants)
		}
		if diff := cmp.Diff(normal(want), normal(got.State)); diff != "" {
			t.Fatalf("seed %d: the bucket of %+v at %d, cut %t (-Go +Lua):\n%s", w.seed, take, r.At, got.Cut, diff)
		}
		w.past[take.Key] = append(w.past[take.Key], bucket.Floor{State: clone(got.State), At: got.Clock, Cut: got.Cut})
	}
}

// compareSums compares the sums of holds in Go with those in Redis, where the latest expiry may be later.
func (w *walk) compareSums(t *testing.T, take *bucket.Take, want, got *bucket.Holds) {
	t.Helper()
	if want.Units() != got.Units() || want.Number() != got.Number() || want.Number() > 0 && want.Until() > got.Until() {
		t.Fatalf("seed %d, leg %d: the holds of %+v are %d of %d units until %d, want %d of %d until %d", w.seed, w.leg, take,
			got.Number(), got.Units(), got.Until(), want.Number(), want.Units(), want.Until())
	}
}

// cutAs returns the log as an answer shows it: all units beyond the cut are at the newest time. The cut may be between
// units of the same time.
func cutAs(s bucket.State, shown []bucket.Grant) bucket.State {
	cut := len(shown) - 2
	if cut < 0 || cut >= len(s.Grants)-1 || s.Grants[cut].Cost < shown[cut].Cost {
		return s
	}
	newest := bucket.Grant{At: s.Grants[len(s.Grants)-1].At}
	for _, g := range s.Grants[cut:] {
		newest.Cost += g.Cost
	}
	newest.Cost -= shown[cut].Cost
	s.Grants[cut].Cost = shown[cut].Cost
	s.Grants = append(s.Grants[:cut+1], newest)
	return s
}

// decide decides in Go, over the walk's own states. It returns the states before the decision, and what became of the
// floors.
func (w *walk) decide(r *bucket.Request) (before []bucket.State, o bucket.Outcome, fates []bucket.Fate) {
	loaded, grew := make([]bucket.Loaded, len(r.Takes)), make([]bool, len(r.Takes))
	for i := range r.Takes {
		t := &r.Takes[i]
		s := w.states[t.Key]
		before = append(before, clone(s))
		loaded[i].State = clone(s)
		var fate bucket.Fate
		fate, grew[i] = w.join(t, &loaded[i].State, r.At)
		fates = append(fates, fate)
		w.note(t, clone(loaded[i].State), r.At)
		grew[i] = fate != bucket.FloorUnusable && w.joinHolds(t, &loaded[i].State, r.At) || grew[i]
	}
	r.Decide(0, loaded, &o)
	for i, t := range r.Takes {
		if loaded[i].Changed || grew[i] {
			w.states[t.Key] = clone(loaded[i].State)
		}
	}
	return before, o, fates
}

// join joins the floor of a take with the state of its bucket.
func (w *walk) join(t *bucket.Take, s *bucket.State, now int64) (fate bucket.Fate, grew bool) {
	f := t.Floor
	switch {
	case f == nil || t.Limit.Requests == 0:
		return bucket.FloorUnsent, false
	case unused(f.State):
		return bucket.FloorJoined, false
	case f.At-now > 86_400_000_000:
		return bucket.FloorUnusable, false
	}
	n, ok := w.notes[t.Key]
	if ok && n.clock >= f.At && (n.clock-now <= bucket.MaxClockStep || f.At-now > bucket.MaxClockStep) {
		return bucket.FloorVoided, false
	}
	alone, joined := clone(*s), clone(*s)
	alone.Remaining(&t.Limit, now) // brings it to the time
	counted := *f
	counted.State.Holds, counted.Unsent = nil, nil // joinHolds adds them, and moves no bucket to another time
	grew = storetest.JoinFloor(&counted, &t.Limit, &joined, now)
	if grew || !unused(joined) && joined.Last != alone.Last {
		*s = joined
		return bucket.FloorJoined, true
	}
	return bucket.FloorJoined, false
}

// unused reports whether nothing is charged.
func unused(s bucket.State) bool { return s.Count == 0 && s.Part == 0 }

// joinHolds adds the holds of a floor that the bucket does not have, and that have not expired.
func (w *walk) joinHolds(t *bucket.Take, s *bucket.State, now int64) (grew bool) {
	if t.Floor == nil || t.Hold == nil || t.Limit.Requests == 0 {
		return false
	}
	at := clone(*s)
	at.Remaining(&t.Limit, now) // brings it to the time
	for _, c := range slices.Concat(t.Floor.State.Holds.Live(), t.Floor.Unsent.Live()) {
		same := func(m bucket.HoldCost) bool { return m.ID == c.ID && m.Expires == c.Expires }
		if c.Expires > at.Last && !slices.ContainsFunc(s.Holds.Live(), same) {
			if s.Holds == nil {
				s.Holds = new(bucket.Holds)
			}
			s.Holds.Add(c)
			grew = true
		}
	}
	return grew
}

// note notes the refund of a take, if its bucket holds anything.
func (w *walk) note(t *bucket.Take, s bucket.State, now int64) {
	if t.Refund == 0 || t.Limit.Requests == 0 {
		return
	}
	if s.Remaining(&t.Limit, now); unused(s) { // brings it to the time
		return
	}
	peek := bucket.Request{At: now}
	peek.Add(bucket.Take{Key: t.Key, Limit: t.Limit})
	var o bucket.Outcome
	peek.Decide(0, []bucket.Loaded{{State: s}}, &o)
	n := refundNote{clock: now, till: now + o.Decisions[0].ResetAfter}
	if old, ok := w.notes[t.Key]; ok && old.clock-now <= bucket.MaxClockStep {
		n.clock, n.till = max(n.clock, old.clock), max(n.till, old.till)
	}
	w.notes[t.Key] = n
}

// floors describes the floors of a request.
func floors(r *bucket.Request) (all string) {
	for i := range r.Takes {
		if f := r.Takes[i].Floor; f != nil {
			all += fmt.Sprintf("take %d: %+v, holds %v and %v ", i, *f, f.State.Holds.Live(), f.Unsent.Live())
		}
	}
	return all
}

// floor sometimes gives a take a floor: an earlier state of its bucket, or a state of another one.
func (w *walk) floor(t *bucket.Take) {
	if w.random.IntN(4) > 0 {
		return
	}
	from := t.Key
	for _, b := range w.buckets {
		if w.random.IntN(3) == 0 && b.Limit.Algorithm == t.Limit.Algorithm {
			from = b.Key
		}
	}
	past := w.past[from]
	if len(past) == 0 {
		return
	}
	shown := past[max(0, len(past)-1-w.random.IntN(len(past))%300)]
	f, n := &shown, w.notes[t.Key]
	f.At = w.pick(f.At, f.At, w.now, n.clock, n.clock+1, w.now+86_400_000_000, w.now+86_400_000_001)
	if n.till <= w.now { // Redis may drop such a note at any time
		f.At = max(f.At, n.clock+1)
	}
	f.State.Holds = nil
	if past := w.reserved[t.Key]; t.Hold != nil && len(past) > 0 {
		f.State.Holds, f.Unsent = new(bucket.Holds), new(bucket.Holds)
		for range w.random.IntN(4) {
			to := f.Unsent
			if t.Hold.Release && w.random.IntN(2) == 0 { // TestRestoredHoldsAreReleased has those that are charged otherwise
				to, w.restored[t.Key] = f.State.Holds, true
			}
			to.Add(past[max(0, len(past)-1-w.random.IntN(10))])
		}
	}
	t.Floor = f
}

func clone(s bucket.State) bucket.State { return s.Clone() }

// compareStored compares the walk's buckets in Redis with the states in Go.
func (w *walk) compareStored(t *testing.T) {
	t.Helper()
	for _, b := range w.buckets {
		text, err := w.lua.stored(b.Key).Result()
		if err != nil && text != "" {
			t.Fatal(err)
		}
		got, err := parseState(b.Limit.Algorithm, text)
		if err != nil {
			t.Fatalf("seed %d: %v", w.seed, err)
		}
		want := clone(w.states[b.Key])
		if w.clock && text == "" { // it may have expired
			want.Remaining(&b.Limit, time.Now().UnixMicro()) // brings it to the time
		}
		if b.Limit.Calendar != nil { // Redis does not know windows before the previous one, and none of them matters
			want.Remaining(&b.Limit, w.now)
			got.Remaining(&b.Limit, w.now)
		}
		if b.Hold != nil {
			w.compareSums(t, &b, want.Holds, got.Holds)
			w.compareHolds(t, &b, want.Holds)
		}
		if diff := cmp.Diff(normal(want), normal(got)); diff != "" {
			t.Fatalf("seed %d, leg %d, bucket %s %+v (-Go +Lua):\n%s", w.seed, w.leg, b.Key, b.Limit, diff)
		}
	}
}

// restoredMark precedes the cost of a hold that a floor has restored.
var restoredMark = regexp.MustCompile(`0?([1-9]\d* \d+ )`)

// compareHolds compares the holds of a bucket in Redis with those in Go.
func (w *walk) compareHolds(t *testing.T, b *bucket.Take, holds *bucket.Holds) {
	t.Helper()
	want := map[string]string{}
	for _, c := range holds.Live() {
		want[string(c.ID[:])] += fmt.Sprintf("%d %d ", c.Cost, c.Expires)
	}
	got := w.lua.held(b.Key).Val()
	for id, value := range got {
		got[id] = restoredMark.ReplaceAllString(value, "$1")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("seed %d, leg %d, the holds of bucket %s %+v (-Go +Lua):\n%s", w.seed, w.leg, b.Key, b.Limit, diff)
	}
}

// normal returns the state without the parts that have no effect: the time of an empty bucket, and the rate of a whole
// number.
func normal(s bucket.State) bucket.State {
	if s.Holds = nil; s.Empty() {
		return bucket.State{}
	}
	if s.Part == 0 {
		s.Rate = 0
	}
	return s
}

// step returns the next random request.
func (w *walk) step() bucket.Request {
	r := bucket.Request{}
	if !w.clock {
		w.now += w.stride()
		r.At = w.now
	}
	for range w.pick(1, 1, 1, 2, 3) {
		b := &w.buckets[w.random.IntN(len(w.buckets))]
		if w.random.IntN(60) == 0 {
			b.Limit = w.limit(b.Limit.Algorithm, b.Limit.Window)
		}
		if b.Hold != nil && w.random.IntN(60) == 0 {
			b.Hold = w.terms(b.Limit.Algorithm)
			b.Hold.Release = b.Hold.Release || w.restored[b.Key]
		}
		r.Add(w.take(b))
	}
	if w.random.IntN(12) == 0 {
		w.giveBack(&r)
	}
	return r
}

// giveBack makes the takes of a request give back charges of a time around the edges.
func (w *walk) giveBack(r *bucket.Request) {
	window, begin := int64(1_000_000), w.now
	if l := &r.Takes[0].Limit; l.Window > 0 {
		window = l.Window
		begin, _ = l.WindowAt(w.now)
	}
	into := w.now - begin
	at := max(1, w.now-w.pick(0, 0, 0, 1, 2, window-1, window, window+1, 2*window, into, into+1,
		w.random.Int64N(window), w.random.Int64N(window)/10, w.random.Int64N(window)/100, -1, -window))
	for i := range r.Takes {
		t := &r.Takes[i]
		back := bucket.Take{Key: t.Key, Limit: t.Limit, Refund: max(1, t.Cost+t.Refund), ChargedAt: at}
		if t.Hold != nil { // what a denied request has reserved is undone
			back.Hold = &bucket.Hold{TTL: t.Hold.TTL, Most: t.Hold.Most, Release: t.Hold.Release}
			w.undo(back.Hold, t.Key)
		}
		*t = back
	}
}

// stride returns the next random step of the clock: around the window's length and its edges, and back.
func (w *walk) stride() int64 {
	window, end := int64(1_000_000), w.now+1_000_000
	if l := &w.buckets[0].Limit; l.Window > 0 {
		window = l.Window
		_, end = l.WindowAt(w.now)
	}
	if w.small && w.random.IntN(50) > 0 {
		return w.random.Int64N(window / 200)
	}
	edge := end - w.now
	if w.random.IntN(50) == 0 {
		return -w.pick(1, 2, 1000, bucket.MaxClockStep, bucket.MaxClockStep+1, 3_600_000_000,
			w.random.Int64N(3_000_000), min(window, 1e12))
	}
	step := w.pick(0, 0, 0, 1, 1, 2, window-1, window, window+1, 2*window, edge, edge-1, edge+1, window/2,
		w.random.Int64N(window), w.random.Int64N(window)/10, w.random.Int64N(window)/100,
		window/max(1, w.buckets[0].Limit.Requests))
	if h := w.buckets[0].Hold; h != nil && w.random.IntN(3) == 0 {
		step = w.pick(0, 1, h.TTL-1, h.TTL, h.TTL+1, h.TTL/2, w.random.Int64N(h.TTL))
	}
	if w.now+step > year2100 {
		return 1
	}
	return step
}

func (w *walk) take(b *bucket.Take) bucket.Take {
	capacity := uint64(b.Limit.Capacity())
	t := bucket.Take{Key: b.Key, Limit: b.Limit, CountDenied: w.random.IntN(3) == 0}
	t.Cost = uint64(w.pick(0, 1, 1, 1, 1, 2, 3, int64(capacity), int64(capacity)+1, int64(capacity/2),
		w.random.Int64N(2*int64(capacity)+2)))
	if w.small && w.random.IntN(8) > 0 {
		t.Cost = uint64(w.pick(1, 1, 1, 2))
		w.floor(&t)
		return t
	}
	switch w.random.IntN(12) {
	case 0:
		t.Cost = 1<<64 - 1
	case 1:
		t.Need = t.Cost + 1
	case 2:
		t.Cost, t.Need = 0, 1
	case 3:
		t.Refund = uint64(w.pick(1, 2, int64(capacity), 2*int64(capacity)))
	case 4:
		t.Cost, t.Refund = 0, uint64(w.pick(1, 2, int64(capacity), w.random.Int64N(int64(capacity)+1)))
	}
	t.Role = bucket.Role(w.pick(0, 0, 0, 1, 2, 2))
	if queued := t; t.Limit.Algorithm.HasQueue() && w.random.IntN(3) == 0 {
		queued.Queue(w.pick(0, 1, 1, 2, 3, int64(capacity), 3*int64(capacity), w.random.Int64N(1000)))
		if queued.Limit.Check() == nil {
			t = queued
		}
	}
	w.hold(&t, b.Hold)
	w.floor(&t)
	return t
}

// hold gives a take random reserves and settlements of few ids, if its limit has holds.
func (w *walk) hold(t *bucket.Take, terms *bucket.Hold) {
	if terms == nil {
		return
	}
	h := *terms
	t.Hold = &h
	capacity := t.Limit.Capacity()
	cost := func() bucket.HoldCost {
		units := w.pick(0, 1, 1, 1, 1, 1, 2, 3, capacity/2, capacity/4, capacity/4, capacity/8, capacity, capacity+1, -1,
			w.random.Int64N(2*capacity+2))
		return bucket.HoldCost{ID: bucket.HoldID{byte(w.random.IntN(3)), 0, ' ', 15: 255}, Cost: uint64(units)}
	}
	if w.random.IntN(3) > 0 {
		t.Cost, t.Need = uint64(w.pick(0, 0, 0, 0, 1)), 0
	}
	for range w.pick(0, 1, 1, 2) {
		h.Reserves = append(h.Reserves, cost())
	}
	if w.random.IntN(2) == 0 {
		h.Reserves = nil
		for range w.pick(0, 1, 1, 2) {
			h.Settles = append(h.Settles, cost())
		}
	}
	if w.random.IntN(8) == 0 {
		h.Settles = append(h.Settles, cost())
	}
	if w.random.IntN(8) == 0 {
		w.undo(&h, t.Key)
	}
	for _, c := range h.Reserves {
		if c.Cost > 0 {
			c.Cost = min(c.Cost, uint64(2*capacity+1))
			c.Expires = w.now + h.TTL + w.pick(0, 0, 0, 0, 0, 1)
			w.reserved[t.Key] = append(w.reserved[t.Key], c)
		}
	}
}

// undo undoes a hold of a bucket that may be there.
func (w *walk) undo(h *bucket.Hold, key string) {
	if past := w.reserved[key]; len(past) > 0 {
		c := past[max(0, len(past)-1-w.random.IntN(10))]
		h.Settles = append(h.Settles, bucket.HoldCost{ID: c.ID, Expires: w.pick(c.Expires, c.Expires, bucket.EndedBefore)})
	}
}

// pick returns one of the choices at random.
func (w *walk) pick(choices ...int64) int64 { return choices[w.random.IntN(len(choices))] }
