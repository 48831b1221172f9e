package table

import "math"

// entry is a stored bucket: its state, and the numbers of what is kept elsewhere. It is a cache line of 64 bytes. So a
// take of a bucket among millions misses the cache twice, here and in the index. An entry has no pointers, so the
// garbage collector skips it.
type entry struct {
	digest      Digest
	last, count int64
	// part is State.Part, or the time of the only grant of a log.
	part int64
	// limit is the number in Shard.limits of the limit of the last charge.
	limit uint32
	// expires is 0 for a free slot.
	expires Expiry
	// grants is the number of the log in Shard.logs, 0 for none: a log then has one grant.
	grants uint32
	// extra is the number in Shard.extras, 0 for none.
	extra uint32
	// place is the index of the bucket's slot in its group; see also Shard.free.
	place uint32
	group uint16
	// holds is the number of live holds, at most mostHolds. The buckets of a group that have any are its first ones.
	holds uint16
}

// mostHolds is the largest number of holds that an entry has.
const mostHolds = math.MaxUint16

// Expiry is the Unix time in s from which a bucket may be dropped.
type Expiry uint32

// ExpiryAt returns the expiry for a time in µs. It is never too early; times beyond 2106 become 2106.
func ExpiryAt(micros int64) Expiry {
	// Round up, and add a second for requests with a time of their own (Request.At): the owner's clock runs on.
	return Expiry(min(max(micros/1_000_000+2, 1), math.MaxUint32))
}

// Passed reports whether a bucket has expired at the time now in µs.
func (e Expiry) Passed(now int64) bool { return int64(e) <= now/1_000_000 }
