package table

import (
	"encoding/binary"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// logs keeps the grants of logs under numbers. A log of one grant needs none: it is in its entry.
type logs struct {
	short pool[[]byte] // see pack
	long  pool[[]bucket.Grant]
}

const (
	// mostPacked is how many grants a packed log has at most. Each take unpacks and packs its log, in some ns a grant.
	mostPacked = 32
	// isLong is set in the number of a log in logs.long.
	isLong = 1 << 31
)

// set keeps the grants of a log with a number or 0, and returns its number, 0 for no grants. last is its State.Last.
func (ls *logs) set(number uint32, last int64, grants []bucket.Grant) uint32 {
	wasLong, long := number&isLong != 0, len(grants) > mostPacked
	if number != 0 && (wasLong != long || len(grants) == 0) {
		ls.remove(number)
		number = 0
	}
	switch {
	case len(grants) == 0:
		return 0
	case long && number != 0:
		*ls.long.at(number &^ isLong) = grants
		return number
	case long:
		return ls.long.add(slices.Clone(grants)) | isLong
	}
	var room [1 + (1+2*mostPacked)*binary.MaxVarintLen64]byte
	packed := pack(room[:0], last, grants)
	if number == 0 {
		return ls.short.add(slices.Clone(packed))
	}
	const small = 64 // bytes, which are not worth another allocation
	if old := ls.short.at(number); len(packed) > cap(*old) || cap(*old) > small && 4*len(packed) < cap(*old) {
		*old = slices.Clone(packed)
	} else {
		*old = append((*old)[:0], packed...)
	}
	return number
}

// get returns the grants of a log. Those of a packed one are appended to room.
func (ls *logs) get(number uint32, last int64, room *[]bucket.Grant) []bucket.Grant {
	if number&isLong != 0 {
		return *ls.long.at(number &^ isLong)
	}
	return unpack(*ls.short.at(number), last, room)
}

func (ls *logs) remove(number uint32) {
	if number&isLong != 0 {
		ls.long.remove(number &^ isLong)
	} else {
		ls.short.remove(number)
	}
}

// pack appends the grants of a log: their number, the age of the oldest one, and for each the time since the previous
// one. The lowest bit of that time is set if the cost follows, which else is 1. Times are in µs. So a grant takes 4
// bytes if the next one follows within 2 minutes, and 5 bytes within 4 hours.
func pack(b []byte, last int64, grants []bucket.Grant) []byte {
	at := grants[0].At
	b = binary.AppendVarint(append(b, byte(len(grants))), last-at)
	for _, g := range grants {
		gap := uint64(g.At-at) << 1
		if at = g.At; g.Cost == 1 {
			b = binary.AppendUvarint(b, gap)
		} else {
			b = binary.AppendVarint(binary.AppendUvarint(b, gap|1), g.Cost)
		}
	}
	return b
}

// unpack appends the grants that pack has packed to room and returns them.
func unpack(packed []byte, last int64, room *[]bucket.Grant) []bucket.Grant {
	grants := reserve(room, int(packed[0]))
	age, n := binary.Varint(packed[1:])
	at, packed := last-age, packed[1+n:]
	for i := range grants {
		gap, n := binary.Uvarint(packed)
		at, packed = at+int64(gap>>1), packed[n:]
		cost := int64(1)
		if gap&1 != 0 {
			cost, n = binary.Varint(packed)
			packed = packed[n:]
		}
		grants[i] = bucket.Grant{At: at, Cost: cost}
	}
	return grants
}

// reserve returns n grants of room, with a capacity for one more.
func reserve(room *[]bucket.Grant, n int) []bucket.Grant {
	from := len(*room)
	*room = slices.Grow(*room, n+1)[:from+n+1]
	return (*room)[from : from+n : from+n+1]
}
