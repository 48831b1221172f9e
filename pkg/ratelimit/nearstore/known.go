package nearstore

import (
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
)

// drift is how much the local clock may be slower than that of Redis between two answers, in µs.
const drift = 1_000

// known is what is known of a bucket, while its shard is locked. The State of its Held is near: base, and what was
// admitted here since. Without a debt, it is equal to base. The Note of its Held is on base.
type known struct {
	*memstore.Held
	*debt        // nil for none
	lease *lease // nil for none
}

// debt is what was admitted here, beyond what Redis has shown.
type debt struct {
	base bucket.State
	// unknown are units that Redis may have charged or not, which are never charged again. They are in base, except those
	// of a log.
	unknown int64
	// flying are units of a catch-up on the wire.
	flying int64
	// take is the bucket, for the catch-up.
	take bucket.Take
	// queued means that the background will repay the debt.
	queued bool
}

// read reads what is known of a bucket. It is empty if the bucket is unknown.
func (k *known) read(h *memstore.Held) {
	*k = known{Held: h}
	switch extra := h.Extra.(type) {
	case *debt:
		k.debt = extra
	case *lease:
		k.lease, k.debt = extra, extra.debt
	}
}

// write keeps what is known until the bucket is empty, and drops a bucket of which nothing is left to know. rest is how
// long the state matters.
func (k *known) write(now, rest int64) {
	if k.State.Empty() && k.debt == nil {
		rest = 0
	}
	switch {
	case k.lease != nil:
		k.lease.debt, k.Extra = k.debt, k.lease
		rest = max(rest, min(k.Limit.Window, answerTime)) // its pace is known beyond a window
	case k.debt != nil:
		k.Extra = k.debt
	default:
		k.Extra = nil
	}
	if k.Unanswered > 0 {
		rest = max(rest, answerTime)
	}
	if k.Changed, k.Expires = true, 0; rest > 0 {
		k.Expires = now + rest
	}
}

// answerTime is longer than any take is on the wire, in µs.
const answerTime = 60_000_000

// low and high return the interval in which T is at a local time. at is the time of the request, if it has one of its
// own (Request.At).
func (k *known) low(at, now int64) int64 {
	if at != 0 {
		return at
	}
	return now + k.Ahead
}

func (k *known) high(at, now int64) int64 {
	if at != 0 {
		return at
	}
	return now + k.Ahead + k.Trip + drift
}

// sent and received return the local times of the request whose answer has shown base.
func (k *known) sent() int64     { return k.received() - k.Trip }
func (k *known) received() int64 { return k.Clock - k.Ahead }

// base returns the state that Redis has shown, and units of unknown outcome.
func (k *known) base() *bucket.State {
	if k.debt != nil {
		return &k.debt.base
	}
	return &k.State
}

// isSuspect reports whether Redis may hold less than base.
func (k *known) isSuspect(epoch uint64) bool {
	return k.Suspect || k.Epoch != epoch && !k.base().Empty()
}

// floor returns the floor for a take of the bucket. Of a log that Redis has cut, it has only the units whose times are
// known, until an answer has proved that the others are lost. To join them as old as the cut would count them twice.
func (k *known) floor() *bucket.Floor {
	f := &bucket.Floor{State: *k.base(), At: k.Clock, Cut: k.Cut}
	if last := len(f.State.Grants) - 1; f.Cut && !k.Proved {
		f.State.Count -= f.State.Grants[last].Cost
		f.State.Grants, f.Cut = f.State.Grants[:last], false
	}
	return f
}

// owes returns the units that Redis is still to charge, at a time of T.
func (k *known) owes(t, replicas int64) int64 {
	if k.debt == nil {
		return 0
	}
	more := k.State.Used(&k.Limit, t) - k.debt.base.Used(&k.Limit, t) - k.unknownInNear(replicas)
	return max(0, (more+replicas-1)/replicas)
}

// unknownInNear returns the units of unknown outcome that near has beyond base.
func (k *known) unknownInNear(replicas int64) int64 {
	if k.Limit.Algorithm == bucket.SlidingWindowLog {
		return replicas * k.unknown
	}
	return (replicas - 1) * k.unknown
}

// refund returns how much a refund takes from near, at a time of T. Units that were admitted here count once for each
// replica.
func (k *known) refund(units uint64, t, replicas int64) uint64 {
	here := min(units, uint64(k.owes(t, replicas)))
	return min(units+here*uint64(replicas-1), math.MaxInt64)
}

// room returns a limit with at least the capacity under which the units of the debt were admitted. A charge beyond
// twice the capacity would be forgotten. A reload may have lowered the limit, and the burst of a queue depends on the
// request (RuleLimit.MaxDelay). A window counts alike under each number of requests.
func (d *debt) room(l bucket.Limit) bucket.Limit {
	admitted := &d.take.Limit
	switch {
	case !l.Algorithm.HasBurst():
		l.Requests = max(l.Requests, admitted.Requests)
	case l.Requests == admitted.Requests:
		l.Burst = max(l.Burst, admitted.Burst)
	}
	return l
}

// wide returns the limit of a catch-up. A log keeps no more units than its limit and one, so it would forget units of a
// debt which a refund may give back later. Under a limit of twice that, it keeps as many as the other algorithms.
func wide(l bucket.Limit) bucket.Limit {
	if l.Algorithm == bucket.SlidingWindowLog {
		l.Requests *= 2
	}
	return l
}

// capacity returns the capacity of the bucket, without what wide has added.
func (a *asked) capacity() int64 {
	c := a.take.Limit.Capacity()
	if a.catchUp > 0 && a.take.Limit.Algorithm == bucket.SlidingWindowLog {
		return c / 2
	}
	return c
}

// roomFor returns a limit with the capacity for the units of a state at a time of T and more: a charge beyond twice the
// capacity would be forgotten. Near needs it, because each unit counts there once for every replica.
func roomFor(more int64, l bucket.Limit, s *bucket.State, t int64) bucket.Limit {
	needed := min(s.Used(&l, t)+more, bucket.MaxRequests)
	if l.Algorithm.HasBurst() {
		l.Burst = max(l.Burst, needed)
	} else {
		l.Requests = max(l.Requests, needed)
	}
	return l
}

// rebase makes near of base and what is still owed at a time of T. A debt that is repaid is dropped.
func (k *known) rebase(t, still, replicas int64) {
	if k.debt == nil {
		return
	}
	k.State = k.debt.base
	if more := replicas*still + k.unknownInNear(replicas); more > 0 {
		limit := roomFor(more, k.Limit, &k.State, t)
		k.State = k.State.Clone()
		k.State.Charge(&limit, t, more)
	}
	if still == 0 && k.flying == 0 && k.unknown == 0 {
		k.debt = nil
	}
}

// atTheCut returns a state that holds no more than Redis does. Of a log that Redis has cut, the rest is as old as the
// cut. It returns nil if that is not known.
func atTheCut(s *bucket.State, isCut bool) *bucket.State {
	last := len(s.Grants) - 1
	switch {
	case !isCut:
		return s
	case last < 1:
		return nil
	}
	c := s.Clone()
	c.Grants[last-1].Cost += c.Grants[last].Cost
	c.Grants = c.Grants[:last]
	return &c
}

// drained returns a time in µs after which a state at a time of T is certainly empty.
func drained(l *bucket.Limit, s *bucket.State, t int64) int64 {
	late := max(0, s.Last-t)
	if l.Algorithm.HasBurst() {
		return late + s.Count + 1
	}
	return late + 2*l.Window
}
