package ratelimit

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

const (
	// A set of 16 keys holds all of its keys that are over their limit, unless there are too many in all. Of 1,024, at
	// least one is forgotten with a probability of 0.03 %.
	hotSets = 256
	hotWays = 16
	// hotText is how much of the entries of a key is kept, in bytes.
	hotText = 183
	// hotHalf is the time in µs after which the count of a key is halved.
	hotHalf = 10_000_000
	// hotEvery is how many requests are counted by one of them, in the mean. While all processors together take fewer than
	// hotExact samples a second, each request is counted by itself.
	hotEvery = 64
	hotExact = 1000
)

// sketch has the keys that are hot, near their limit or over it. A key is a bucket of a limit. The sketch has a fixed
// size, and is safe for concurrent use. Each denial and each decision near a limit is noted exactly. Hot keys are
// counted by Space-Saving (Metwally, Agrawal, El Abbadi 2005) in each set. A new key replaces the one with the smallest
// count, and inherits that count as its error. Only another key over its limit replaces one that is over it.
type sketch struct {
	seed maphash.Seed
	now  func() time.Time
	// every is the mean gap between samples. samples are those in the present second.
	every           atomic.Uint32
	second, samples atomic.Int64
	forgotten       atomic.Uint64 // the keys over their limit that others have replaced
	sets            [hotSets]hotSet
}

type hotSet struct {
	mu sync.Mutex // for all but the atomic fields of the entries
	// half is the number of the time hotHalf to which the counts belong.
	half int64
	// floor is at least the count of each key that is not in the set.
	floor   uint64
	hashes  [hotWays]atomic.Uint64 // 0 for a free entry
	entries [hotWays]hotEntry
}

// hotEntry is what is known of a key. The atomic fields are also written without the lock. If another key replaces it
// at this moment, they are wrong until the next decision on that.
type hotEntry struct {
	// since is the first denial of the present run, in µs since 1970; 0 for no run. denied counts the denials of the run.
	since  atomic.Int64
	denied atomic.Uint64
	// until is when the bucket is unused again if no request follows. The run is then over.
	until               atomic.Int64
	remaining, capacity atomic.Int64

	// counters are those of the limit: they stay when rules are loaded again.
	counters  atomic.Pointer[Counters]
	hits, err uint64
	length    uint8
	text      [hotText]byte
}

func newSketch(now func() time.Time) *sketch {
	h := &sketch{seed: maphash.MakeSeed(), now: now}
	h.every.Store(1)
	return h
}

// sample returns for how many requests the present one of a caller counts: 0 for most requests. The gaps are random, so
// that no order of requests leaves out a key.
func (h *sketch) sample(r *Rounds) uint64 {
	if r.gap > 1 {
		r.gap--
		return 0
	}
	counts := uint64(r.every)
	r.every = h.every.Load()
	r.gap = 1 + rand.Uint32N(2*r.every-1)
	if counts > 0 {
		h.adapt(r.time(h.now))
	} else if r.gap > 1 { // the first request of a caller counts no more often than others
		r.gap--
		return 0
	}
	return max(1, counts)
}

// adapt counts a sample, and chooses how many requests the next ones stand for.
func (h *sketch) adapt(at int64) {
	second, last := at/1_000_000, h.second.Load()
	if last != second && h.second.CompareAndSwap(last, second) {
		if h.samples.Swap(0)*int64(h.every.Load()) < hotExact || second != last+1 {
			h.every.Store(1)
		}
	}
	if h.samples.Add(1) == hotExact {
		h.every.Store(hotEvery)
	}
}

// note notes the decision on a limit for the sketch. It returns the beginning of the run if that is a denial, else 0. A
// refund is no request, and what a policy decides shows nothing of the bucket.
func (p *Plan) note(n *noted, takes []bucket.Take, r *Rounds) int64 {
	policy := p.decider.Undecided() && (p.decider != FromLastKnown || n.limit.limit.OnStoreError == Allow)
	if policy || p.query.Descriptors[n.limit.descriptor].Negative {
		return 0
	}
	key := ""
	if n.limit.cached == 0 {
		key = takes[n.limit.take].Key
	} else {
		key = texts.View(n.limit.keyed.appendKey(
			nil, p.rules.options.KeyPrefix, n.limit.limit, p.entries(n.limit.descriptor), p.query.Refused))
	}
	if p.limiter.dry {
		return p.limiter.sketch.look(n, key, r)
	}
	return p.limiter.sketch.note(n, key, r)
}

// look returns what note would, and changes nothing.
func (h *sketch) look(n *noted, key string, r *Rounds) int64 {
	if n.Allowed {
		return 0
	}
	at := r.time(h.now)
	since, _ := h.run(key, at)
	return cmp.Or(since, at)
}

// run returns the first denial of the present run of a key and the number of denials since, 0 and 0 for no run.
func (h *sketch) run(key string, at int64) (since int64, denied uint64) {
	hash := max(1, maphash.String(h.seed, key))
	set := &h.sets[hash%hotSets]
	set.mu.Lock()
	defer set.mu.Unlock()
	if i := set.find(hash); i >= 0 && set.entries[i].isOver(at) {
		return set.entries[i].since.Load(), set.entries[i].denied.Load()
	}
	return 0, 0
}

// noted is a decision on a limit for the sketch.
type noted struct {
	plan     *Plan
	limit    *appliedLimit
	counters *Counters
	*bucket.Decision
	capacity int64
	counts   uint64 // from sample
	far      bool   // neither near the limit nor sampled: it only ends a run
}

func (h *sketch) note(n *noted, key string, r *Rounds) int64 {
	hash := max(1, maphash.String(h.seed, key))
	set := &h.sets[hash%hotSets]
	i := set.find(hash)
	if n.far && (i < 0 || set.entries[i].since.Load() == 0) {
		return 0
	}
	at := r.time(h.now)
	if i >= 0 && n.counts == 0 && set.entries[i].counters.Load() == n.counters {
		e := &set.entries[i]
		switch since := e.since.Load(); {
		case n.Allowed && since == 0:
			e.show(n, at)
			return 0
		case !n.Allowed && since != 0 && at < e.until.Load():
			e.denied.Add(1)
			e.show(n, at)
			return since
		}
	}
	return h.noteLocked(set, hash, n, at)
}

// noteLocked notes a decision that begins or ends a run, is sampled, or is the first on its key.
func (h *sketch) noteLocked(set *hotSet, hash uint64, n *noted, at int64) int64 {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.halve(at)
	i := set.find(hash)
	if i < 0 {
		if i = h.insert(set, n, at); i < 0 {
			return 0
		}
		set.hashes[i].Store(hash)
		set.entries[i].describe(n, hash)
	}
	e := &set.entries[i]
	if e.hits += n.counts; e.counters.Load() != n.counters { // a new entry, or a limit with a new name
		e.endRun()
		e.counters.Store(n.counters)
	}
	isOver := e.isOver(at)
	if n.Allowed || !isOver {
		e.endRun()
	}
	switch {
	case n.Allowed:
	case isOver:
		e.denied.Add(1)
	default:
		n.counters.over.Add(1)
		e.denied.Store(1)
		e.since.Store(at)
	}
	e.show(n, at)
	return e.since.Load()
}

func (e *hotEntry) endRun() {
	if e.since.Swap(0) != 0 {
		e.counters.Load().over.Add(-1)
	}
}

// insert returns the entry for a new key, −1 for none.
func (h *sketch) insert(set *hotSet, n *noted, at int64) int {
	least, leastRank := 0, uint64(math.MaxUint64)
	for i := range set.entries {
		e := &set.entries[i]
		rank := min(1, set.hashes[i].Load()) + e.hits
		if e.isOver(at) {
			rank |= 1 << 63
		}
		if rank < leastRank {
			least, leastRank = i, rank
		}
	}
	e := &set.entries[least]
	if e.isOver(at) {
		if n.Allowed {
			set.floor += n.counts
			return -1
		}
		h.forgotten.Add(1)
	}
	e.endRun()
	set.floor = max(set.floor, e.hits)
	e.hits, e.err = set.floor, set.floor
	return least
}

// find returns the index of a key, −1 for none.
func (s *hotSet) find(hash uint64) int {
	for i := range s.hashes {
		if s.hashes[i].Load() == hash {
			return i
		}
	}
	return -1
}

// halve halves all counts for each hotHalf since the last time.
func (s *hotSet) halve(at int64) {
	half := at / hotHalf
	if half <= s.half {
		return
	}
	by := half - s.half
	s.half = half
	s.floor >>= by
	for i := range s.entries {
		s.entries[i].hits >>= by
		s.entries[i].err >>= by
	}
}

func (e *hotEntry) isOver(at int64) bool { return e.since.Load() != 0 && at < e.until.Load() }

// show notes what the bucket has shown. A limit of 0 has no bucket: its run ends after a window without requests. One
// of concurrency has no window: its run ends when all holds have expired.
func (e *hotEntry) show(n *noted, at int64) {
	wait := n.ResetAfter
	if wait == 0 && (!n.Allowed || n.Held != nil && n.Held.Units > 0) {
		if wait = n.limit.limit.Window; wait == 0 {
			wait = n.limit.limit.Hold.TTL
		}
	}
	set(&e.until, at+wait)
	set(&e.remaining, n.Remaining)
	set(&e.capacity, n.capacity)
}

// set sets a value that seldom changes: to store it takes longer than to read it.
func set(v *atomic.Int64, to int64) {
	if v.Load() != to {
		v.Store(to)
	}
}

// describe names the key by the entries of its request. The end of a long text is replaced by a part of the hash.
func (e *hotEntry) describe(n *noted, hash uint64) {
	text, before := e.text[:0], ""
	if n.plan.query.Refused {
		before = "(refused requests) "
	}
	for _, entry := range n.plan.entries(n.limit.descriptor) {
		for _, part := range [...]string{before, entry.Key, "=", entry.Value} {
			text = append(text, part[:min(len(part), cap(text)-len(text))]...)
		}
		before = ","
	}
	if len(text) == cap(text) {
		const end, digits = "…", 8
		text = append(text[:cap(text)-len(end)-digits], end+strconv.FormatUint(hash|1<<63, 16)[:digits]...)
	}
	e.length = uint8(len(text))
}
