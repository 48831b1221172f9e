package memstore

import (
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// entry is a stored bucket: its state, and the numbers of what is kept elsewhere. It is a cache line of 64 bytes. So a
// take of a bucket among millions misses the cache twice, here and in the index. An entry has no pointers, so the
// garbage collector skips it.
type entry struct {
	digest      digest
	last, count int64
	// part is State.Part, or the time of the only grant of a log.
	part int64
	// limit is the number in table.limits of the limit of the last charge.
	limit uint32
	// expires is the Unix time in s from which the bucket may be dropped. 0 means a free slot.
	expires uint32
	// grants is the number of the log in table.logs, 0 for none: a log then has one grant.
	grants uint32
	// group is the number of the bucket's group, and place the index of the bucket's slot in it; see also table.free.
	place uint32
	group uint16
}

// state reads the state of an entry into s. The grants of a log use memory of room, or of the table. A debt belongs to
// the rate of the limit of the last charge.
func (t *table) state(e *entry, s *bucket.State, room *[]bucket.Grant) {
	l := t.limits.at(e.limit)
	*s = bucket.State{Last: e.last, Count: e.count, Part: e.part}
	switch {
	case l.Algorithm.HasBurst():
		s.Rate = l.Requests
	case l.Algorithm != bucket.SlidingWindowLog:
	case e.grants != 0:
		s.Part, s.Grants = 0, t.logs.get(e.grants, e.last, room)
	case e.count > 0:
		s.Part, s.Grants = 0, reserve(room, 1)
		s.Grants[0] = bucket.Grant{At: e.part, Cost: e.count}
	}
}

// setState stores a state.
func (t *table) setState(e *entry, s *bucket.State) {
	e.last, e.count, e.part = s.Last, s.Count, s.Part
	grants := s.Grants
	if len(grants) == 1 && grants[0].Cost == s.Count {
		e.part, grants = grants[0].At, nil
	}
	if e.grants != 0 || len(grants) > 0 {
		e.grants = t.logs.set(e.grants, s.Last, grants)
	}
}

// seconds converts a time from µs to s for entry.expires. It is never too early; times beyond 2106 become 2106.
func seconds(micros int64) uint32 {
	// Round up, and add a second for requests with a time of their own (Request.At): the store's clock runs on.
	return uint32(min(max(micros/1_000_000+2, 1), math.MaxUint32))
}

// expired reports whether a bucket with this expiry, a Unix time in s, has expired at the time now in µs.
func expired(expires uint32, now int64) bool { return int64(expires) <= now/1_000_000 }
