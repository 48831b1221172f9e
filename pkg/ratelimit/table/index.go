package table

// index finds the slot of a key. It is a hash table in segments: a hash chooses a segment, and linear probing searches
// only that one. So the index grows by one segment at a time (linear hashing), and no take waits for all to move.
type index struct {
	segments []*segment
	// mask is a power of two less 1, and chooses the segment. While the number of segments doubles, segments beyond the
	// last one do not exist yet: their places are still in the segments that they will be split from.
	mask uint32
}

// segmentLen is how many places are moved at once, in some µs. A segment fills up as all others do, because clients
// cannot choose hashes. At two thirds, it would be ten standard deviations from full.
const segmentLen = 1024

// segment has places. A place holds the low 32 bits of a hash and a slot + 1, or 0 if it is free.
type segment [segmentLen]uint64

func newPlace(hash uint64, slot uint32) uint64 { return hash<<32 | uint64(slot+1) }

// hashOf returns the low 32 bits of a place's hash. The lowest choose the place in a segment, the others the segment.
func hashOf(place uint64) uint32 { return uint32(place >> 32) }

// slotOf returns the slot of a place that is not free.
func slotOf(place uint64) uint32 { return uint32(place) - 1 }

// segment returns the segment of a hash. The index must have segments.
func (x *index) segment(hash uint32) *segment {
	n := hash / segmentLen & x.mask
	if n >= uint32(len(x.segments)) {
		n &= x.mask >> 1
	}
	return x.segments[n]
}

// add adds a place. used is how many places the index has.
func (x *index) add(place uint64, used int) {
	switch n := len(x.segments); {
	case n == 0:
		x.segments = append(x.segments, new(segment))
	case uint32(n) <= x.mask:
		x.split()
	case 3*(used+1) > 2*segmentLen*n:
		x.mask = 2*x.mask + 1
		x.split()
	}
	x.segment(hashOf(place)).add(place)
}

// split adds the next segment. It gets its places from the one that has had them so far.
func (x *index) split() {
	from := uint32(len(x.segments)) & (x.mask >> 1)
	old := x.segments[from]
	x.segments[from] = new(segment)
	x.segments = append(x.segments, new(segment))
	for _, place := range old {
		if place != 0 {
			x.segment(hashOf(place)).add(place)
		}
	}
}

func (s *segment) add(place uint64) {
	i := hashOf(place) % segmentLen
	for s[i] != 0 {
		i = (i + 1) % segmentLen
	}
	s[i] = place
}

// remove removes a place, which must be there. It moves the places behind up, so that no probe ends too early.
func (s *segment) remove(place uint64) {
	hole := hashOf(place) % segmentLen
	for s[hole] != place {
		hole = (hole + 1) % segmentLen
	}
	for i := (hole + 1) % segmentLen; s[i] != 0; i = (i + 1) % segmentLen {
		// The place at i may move to the hole unless its probe begins behind the hole.
		begin := hashOf(s[i]) % segmentLen
		if (i-begin)%segmentLen >= (i-hole)%segmentLen {
			s[hole] = s[i]
			hole = i
		}
	}
	s[hole] = 0
}
