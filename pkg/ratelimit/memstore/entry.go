package memstore

import (
	"encoding/binary"
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// inlineKey is the longest key that an entry holds.
const inlineKey = 72

// longKey is the keyLen of an entry whose key is in table.longKeys. The key field begins with the number of that key.
const longKey = math.MaxUint8

// heldKeyLen is the keyLen of an entry for a Held, which has a short key. Its other fields follow in the key field.
const heldKeyLen = longKey - 1

// entry is a stored bucket: its state, the limit of its last charge and its key, in 128 bytes. They lie in two
// neighbouring cache lines. So a take of a bucket among millions misses the cache twice, here and in the index. An
// entry has no pointers, so the garbage collector skips it. Requests and burst fit 32 bits: bucket.MaxRequests.
type entry struct {
	last, count int64
	part        int64
	window      int64
	requests    uint32
	burst       uint32
	// expires is the Unix time in s from which the bucket may be dropped. 0 means a free slot.
	expires uint32
	// grants is the number of the log in table.logs, 0 for none.
	grants uint32
	// group is the number of the bucket's group, and place the index of the bucket's slot in it.
	place     uint32
	group     uint16
	algorithm bucket.Algorithm
	keyLen    uint8
	key       [inlineKey]byte
}

// limit returns the limit of the bucket's last charge.
func (e *entry) limit() bucket.Limit {
	return bucket.Limit{Requests: int64(e.requests), Window: e.window, Burst: int64(e.burst), Algorithm: e.algorithm}
}

func (e *entry) setLimit(l *bucket.Limit) {
	e.requests, e.window, e.burst, e.algorithm = uint32(l.Requests), l.Window, uint32(l.Burst), l.Algorithm
}

// state reads all but the log into s. A debt belongs to the rate of the limit of the last charge.
func (e *entry) state(s *bucket.State) {
	s.Last, s.Count, s.Part, s.Rate = e.last, e.count, e.part, 0
	if e.algorithm.HasBurst() {
		s.Rate = int64(e.requests)
	}
}

// setState stores all but the log.
func (e *entry) setState(s *bucket.State) {
	e.last, e.count, e.part = s.Last, s.Count, s.Part
}

func (e *entry) setLongKey(number uint32) {
	e.keyLen = longKey
	binary.LittleEndian.PutUint32(e.key[:], number)
}

func (e *entry) longKey() uint32 { return binary.LittleEndian.Uint32(e.key[:]) }

// seconds converts a time from µs to s for entry.expires. It is never too early; times beyond 2106 become 2106.
func seconds(micros int64) uint32 {
	// Round up, and add a second for requests with a time of their own (Request.At): the store's clock runs on.
	return uint32(min(max(micros/1_000_000+2, 1), math.MaxUint32))
}

// expired reports whether a bucket with this expiry, a Unix time in s, has expired at the time now in µs.
func expired(expires uint32, now int64) bool { return int64(expires) <= now/1_000_000 }
