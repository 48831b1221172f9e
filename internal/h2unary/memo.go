package h2unary

import "bytes"

// A connection remembers maxKnown header blocks of at most maxBlock bytes, and as many literals of at most maxLiteral.
const (
	maxKnown   = 8
	maxBlock   = 512
	maxLiteral = 256
)

// memo remembers the last values by their bytes.
type memo[V any] struct {
	known [maxKnown]struct {
		bytes []byte
		value V
	}
	next int // It is the index that is replaced next.
}

// find returns the value of bytes, or nil if it is not known.
func (m *memo[V]) find(b []byte) *V {
	for i := range m.known {
		if k := &m.known[i]; len(b) > 0 && bytes.Equal(k.bytes, b) {
			return &k.value
		}
	}
	return nil
}

// forget forgets all values.
func (m *memo[V]) forget() {
	for i := range m.known {
		m.known[i].bytes = m.known[i].bytes[:0]
	}
}

func (m *memo[V]) add(b []byte, value V) {
	k := &m.known[m.next]
	k.bytes, k.value = append(k.bytes[:0], b...), value
	m.next = (m.next + 1) % maxKnown
}
