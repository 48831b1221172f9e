package nearstore

import (
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// drift is how much the local clock may be slower than that of Redis between two answers, in µs.
const drift = 1_000

// buckets is what is known of the buckets in Redis.
type buckets = table.Table[note, extra]

// handle names a bucket. A copy of it finds the bucket faster once edit has found it.
type handle struct {
	key  table.Digest
	rule uint64 // Take.Rule
	slot uint32 // where the bucket was
}

// known is what is known of a bucket, while its shard is locked.
type known struct {
	handle
	found bool // the bucket is not unknown
	// state is near: base, and what was admitted here since. Without a debt, it is equal to base. A full table chooses by
	// it and the limit what to forget. Nothing changes its Grants in place.
	limit bucket.Limit
	state bucket.State
	note
	extra
	// changed makes edit keep the bucket until the local time expires, or drop it if that is 0.
	changed bool
	expires int64
}

// note is what is known of base. It has no pointers: see table.Table.
type note struct {
	// clock is the T of the answer that has shown base, 0 if none has, and ahead how far T was ahead of the local clock.
	clock, ahead int64
	// heard is the local time of the last answer. It may be another one, which base includes.
	heard int64
	// epoch is that of the server when the request for that answer was sent.
	epoch uint64
	// trip is the time from sending that request to receiving the answer, in µs.
	trip int64
	// unanswered are the units of takes on the wire.
	unanswered int64
	// confirmed means that Redis has shown base, and nothing is known that has made the bucket emptier since.
	confirmed bool
	// cut means that base is a log of which Redis has sent only the oldest part (bucket.Seen.Cut).
	cut bool
	// suspect means that Redis may hold less than base.
	suspect bool
	// proved means that an answer has shown less than was known.
	proved bool
}

// extra is what few buckets have.
type extra struct {
	*debt           // nil for none
	lease *lease    // nil for none
	holds *holdings // nil for none
}

// debt is what was admitted here, beyond what Redis has shown.
type debt struct {
	base bucket.State
	// replicas is how often each unit counts in near: the largest Store.replicas of a decision without Redis since the
	// debt began. With a smaller one, the units of replicas that have gone would pass again.
	replicas int64
	// unknown are units that Redis may have charged. They are never charged again. They are in base, except in a log.
	unknown int64
	// flying are units of a catch-up on the wire.
	flying int64
	// take is the bucket, for the catch-up.
	take bucket.Take
	// queued means that the background will repay the debt.
	queued bool
}

// read reads what is known of the bucket that k names. It is empty if the bucket is unknown.
func (k *known) read(sh *table.Shard[note, extra]) {
	*k = known{handle: k.handle}
	if k.slot = sh.Has(&k.key, k.slot); k.slot == table.NoSlot {
		return
	}
	k.found, k.limit, k.note, k.extra = true, *sh.Limit(k.slot), *sh.Note(k.slot), sh.Extra(k.slot)
	var log []bucket.Grant // a log of its own
	sh.State(k.slot, &k.state, &log)
}

// keep keeps or drops the bucket.
func (k *known) keep(sh *table.Shard[note, extra], s *Store) {
	if k.found {
		k.slot = sh.Has(&k.key, k.slot) // again: another bucket of the same edit may have evicted it
	}
	switch {
	case k.expires > 0:
		if k.slot == table.NoSlot {
			k.slot = sh.Add(&k.key, k.rule, table.Clock{Now: s.now(), Ahead: k.ahead})
		}
		if k.holds != nil {
			sh.SetHolds(k.slot, k.holds.number())
			if k.holds.empty() {
				k.holds = nil
			}
		}
		sh.Set(k.slot, &k.limit, &k.state, table.ExpiryAt(k.expires))
		if *sh.Note(k.slot) = k.note; k.extra != (extra{}) {
			sh.SetExtra(k.slot, k.extra)
		} else {
			sh.DropExtra(k.slot)
		}
	case k.slot != table.NoSlot:
		sh.Remove(k.slot)
	}
}

// write keeps what is known for rest, as long as the state matters. It drops a bucket of which nothing is known.
func (k *known) write(now, rest int64) {
	if k.state.Empty() && k.debt == nil {
		rest = 0
	}
	if k.lease != nil {
		rest = max(rest, min(k.limit.Window, answerTime)) // its pace is known beyond a window
	}
	if k.holds != nil && !k.holds.empty() {
		rest = max(rest, k.holds.ttl)
	}
	if k.unanswered > 0 {
		rest = max(rest, answerTime)
	}
	if k.changed, k.expires = true, 0; rest > 0 {
		k.expires = now + rest
	}
}

// answerTime is longer than any take is on the wire, in µs.
const answerTime = 60_000_000

// low and high return the interval in which T is at a local time. at is Request.At, 0 if the request has no time.
func (k *known) low(at, now int64) int64 {
	if at != 0 {
		return at
	}
	return now + k.ahead
}

func (k *known) high(at, now int64) int64 {
	if at != 0 {
		return at
	}
	return now + k.ahead + k.trip + drift
}

// sent and received return the local times of the request whose answer has shown base.
func (k *known) sent() int64     { return k.received() - k.trip }
func (k *known) received() int64 { return k.clock - k.ahead }

// base returns the state that Redis has shown, and units of unknown outcome.
func (k *known) base() *bucket.State {
	if k.debt != nil {
		return &k.debt.base
	}
	return &k.state
}

// isSuspect reports whether Redis may hold less than base.
func (k *known) isSuspect(epoch uint64) bool { return k.suspect || k.epoch != epoch && !k.isUnused() }

// needsFloor reports whether a take carries what is known, because Redis may have lost it, or has not seen it.
func (k *known) needsFloor(epoch uint64) bool {
	return k.isSuspect(epoch) && !k.isUnused() || k.holds != nil && k.holds.unsent.Number() > 0
}

// isUnused reports whether nothing is known that Redis could lose.
func (k *known) isUnused() bool {
	return k.base().Empty() && (k.holds == nil || k.holds.own.Number() == 0)
}

// floor returns the floor for a take of the bucket. Of a log that Redis has cut, it has only the units whose times are
// known, until an answer has proved that the others are lost. To join them as old as the cut would count them twice.
func (k *known) floor() *bucket.Floor {
	f := &bucket.Floor{State: *k.shown(), At: k.clock, Cut: k.cut}
	if last := len(f.State.Grants) - 1; f.Cut && !k.proved {
		f.State.Count -= f.State.Grants[last].Cost
		f.State.Grants, f.Cut = f.State.Grants[:last], false
	}
	k.holds.floor(f)
	return f
}

// owes returns the units that Redis is still to charge, at a time of T.
func (k *known) owes(t int64) int64 {
	if k.debt == nil {
		return 0
	}
	more := k.state.Used(&k.limit, t) - k.debt.base.Used(&k.limit, t) - k.unknownInNear()
	return max(0, (more+k.replicas-1)/k.replicas)
}

// unknownInNear returns the units of unknown outcome that near has beyond base.
func (k *known) unknownInNear() int64 {
	if k.limit.Algorithm.HasGrants() {
		return k.replicas * k.unknown
	}
	return (k.replicas - 1) * k.unknown
}

// divide makes each unit of a debt count for more replicas, if there are more than before.
func (k *known) divide(at, now, replicas int64) {
	if k.debt == nil || replicas <= k.replicas {
		return
	}
	t := k.low(at, now)
	still := k.owes(t)
	k.replicas = replicas
	k.rebase(t, still)
	k.write(now, drained(&k.limit, &k.state, t))
}

// refund returns how much a refund takes from near at a time of T. Units admitted here count once for each replica.
func (k *known) refund(units uint64, t int64) uint64 {
	if k.debt != nil {
		units += min(units, uint64(k.owes(t))) * uint64(k.replicas-1)
	}
	return min(units, math.MaxInt64)
}

// room returns a limit with at least the capacity under which the units of the debt were admitted. A charge beyond
// twice the capacity would be forgotten. A reload may have lowered the limit, and the burst of a queue depends on the
// request (Take.Queue). A window counts alike under each number of requests.
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
	if l.Algorithm.HasGrants() {
		l.Requests *= 2
	}
	return l
}

// capacity returns the capacity of the bucket, without what wide has added.
func (a *sentTake) capacity() int64 {
	c := a.take.Limit.Capacity()
	if a.repays && a.take.Limit.Algorithm.HasGrants() {
		return c / 2
	}
	return c
}

// roomFor returns a limit with the capacity for the units of a state at a time of T and more: a charge beyond twice the
// capacity would be forgotten. Near needs it, because each unit counts there once for every replica.
func roomFor(more int64, l bucket.Limit, s *bucket.State, t int64) bucket.Limit {
	needed := min(s.Used(&l, t)+more, max(bucket.MaxRequests, l.Algorithm.Most()))
	if l.Algorithm.HasBurst() {
		l.Burst = max(l.Burst, needed)
	} else {
		l.Requests = max(l.Requests, needed)
	}
	return l
}

// rebase makes near of base and what is still owed at a time of T. A debt that is repaid is dropped.
func (k *known) rebase(t, still int64) {
	if k.debt == nil {
		return
	}
	k.state = k.debt.base
	if more := k.replicas*still + k.unknownInNear(); more > 0 {
		limit := roomFor(more, k.limit, &k.state, t)
		k.state = k.state.Clone()
		k.state.Charge(&limit, t, more)
	}
	if still == 0 && k.flying == 0 && k.unknown == 0 && !k.holds.owed() {
		k.debt = nil
	}
}

// atTheCut returns a state that holds no more than Redis does. Of a log that Redis has cut, the rest is as old as the
// cut. It returns nil if that is not known.
func atTheCut(s *bucket.State, isCut bool) *bucket.State {
	switch {
	case !isCut:
		return s
	case len(s.Grants) < 2:
		return nil
	}
	f := bucket.Floor{State: *s, Cut: true}
	lowest := f.Lowest()
	return &lowest
}

// drained returns a time in µs after which a state at a time of T is certainly empty.
func drained(l *bucket.Limit, s *bucket.State, t int64) int64 {
	late := max(0, s.Last-t)
	if l.Algorithm.HasBurst() {
		return late + s.Count + 1
	}
	return late + 2*l.Window
}
