package memstore

import (
	"encoding/binary"
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// inlineKey is the longest key that an entry has room for.
const inlineKey = 72

// longKey is the keyLen of an entry whose key is kept in table.longKeys, under the number that its key begins with.
const longKey = math.MaxUint8

// entry is a bucket as it is kept: its state, the limit it was last charged under and its key, in 128 bytes. They lie in two
// neighbouring cache lines, so that a take of a bucket among millions misses the cache twice, here and in the index; and
// there are no pointers, so that the garbage collector has nothing to look at. Requests and burst fit 32 bits:
// bucket.MaxRequests.
type entry struct {
	last, count int64
	part        int64
	window      int64
	requests    uint32
	burst       uint32
	// expires is the Unix time in s from which the bucket may be dropped. 0 means that the slot is free.
	expires uint32
	// grants is the number of the log in table.logs, 0 for none.
	grants uint32
	// place is where the slot of the bucket is in its group, and group the number of that.
	place     uint32
	group     uint16
	algorithm bucket.Algorithm
	keyLen    uint8
	key       [inlineKey]byte
}

// limit is the limit under which the bucket was last charged.
func (e *entry) limit() bucket.Limit {
	return bucket.Limit{Requests: int64(e.requests), Window: e.window, Burst: int64(e.burst), Algorithm: e.algorithm}
}

func (e *entry) setLimit(l *bucket.Limit) {
	e.requests, e.window, e.burst, e.algorithm = uint32(l.Requests), l.Window, uint32(l.Burst), l.Algorithm
}

// state reads all but the log into s. A debt was worked out for the rate of the limit that it was last charged under.
func (e *entry) state(s *bucket.State) {
	s.Last, s.Count, s.Part, s.Rate = e.last, e.count, e.part, 0
	if e.algorithm.HasBurst() {
		s.Rate = int64(e.requests)
	}
}

// setState keeps all but the log.
func (e *entry) setState(s *bucket.State) {
	e.last, e.count, e.part = s.Last, s.Count, s.Part
}

func (e *entry) setLongKey(number uint32) {
	e.keyLen = longKey
	binary.LittleEndian.PutUint32(e.key[:], number)
}

func (e *entry) longKey() uint32 { return binary.LittleEndian.Uint32(e.key[:]) }

// seconds is a time in µs as one in s for entry.expires: never too early, and what lies beyond 2106 expires then.
func seconds(micros int64) uint32 {
	// Rounded up, and a second longer for requests with a time of their own (Request.At), between which the store's clock
	// runs on.
	return uint32(min(max(micros/1_000_000+2, 1), math.MaxUint32))
}

// expired reports whether a bucket that expires at this Unix time in s has done so at the time now in µs.
func expired(expires uint32, now int64) bool { return int64(expires) <= now/1_000_000 }
