package h2unary

import "bytes"

// Bounds of what is remembered of a connection: maxKnown header blocks of at most maxBlock bytes, and as many literals
// of at most maxLiteral.
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

func (m *memo[V]) add(b []byte, value V) {
	k := &m.known[m.next]
	k.bytes, k.value = append(k.bytes[:0], b...), value
	m.next = (m.next + 1) % maxKnown
}

// blocks remembers the heads of header blocks by their bytes.
//
// A block may be skipped if its head is known, and if decoding it would change nothing. Which instructions a block has
// depends on its bytes alone, so bytes that once changed nothing never do. The meaning of a block that does not use the
// dynamic table depends on its bytes alone. That of another depends on the table, so it is forgotten when the table
// changes. Weaker rules are wrong: two equal blocks can mean different fields, and an insertion inserts each time.
type blocks struct{ memo[knownHead] }

type knownHead struct {
	head
	uses bool // The block uses the dynamic table.
}

// forget forgets what a block with this effect has changed.
func (b *blocks) forget(e effect) {
	for i := range b.known {
		if k := &b.known[i]; e.changes && k.value.uses {
			k.bytes = k.bytes[:0]
		}
	}
}

// learn records what a block meant, if it may be skipped when it comes again.
func (b *blocks) learn(block []byte, h *head, e effect) {
	if !e.changes && len(block) <= maxBlock && len(h.kept) == 0 {
		b.add(block, knownHead{*h, e.uses})
	}
}
