package h2unary

import "bytes"

// Bounds of what is remembered of a connection's header blocks.
const (
	maxBlocks   = 8
	maxBlock    = 512
	maxLiterals = 4
	maxLiteral  = 256
)

// blocks remembers the heads of header blocks by their bytes.
//
// A block may be skipped if its head is known, and if decoding it would change nothing. Which instructions a block has
// depends on its bytes alone, so bytes that once changed nothing never do. The meaning of a block that does not use the
// dynamic table depends on its bytes alone. That of another depends on the table, so it is forgotten when the table
// changes. Weaker rules are wrong: two equal blocks can mean different fields, and an insertion inserts each time.
type blocks struct {
	known [maxBlocks]knownBlock
	next  int // It is the index that is replaced next.
}

type knownBlock struct {
	bytes []byte
	head  head
	uses  bool // The block uses the dynamic table.
}

// find returns the head of a block, or nil if it is not known.
func (b *blocks) find(block []byte) *head {
	for i := range b.known {
		if k := &b.known[i]; len(block) > 0 && bytes.Equal(k.bytes, block) {
			return &k.head
		}
	}
	return nil
}

// forget forgets what a block with this effect has changed.
func (b *blocks) forget(e effect) {
	for i := range b.known {
		if k := &b.known[i]; e.changes && k.uses {
			k.bytes = k.bytes[:0]
		}
	}
}

// learn records what a block meant, if it may be skipped when it comes again.
func (b *blocks) learn(block []byte, h *head, e effect) {
	if e.changes || len(block) > maxBlock || len(h.kept) > 0 {
		return
	}
	k := &b.known[b.next]
	k.bytes, k.head, k.uses = append(k.bytes[:0], block...), *h, e.uses
	b.next = (b.next + 1) % maxBlocks
}

// literals remembers paths with Huffman values by their bytes. Envoy sends the same path with each request, but never
// puts it into the table. The meaning of such bytes never changes: they do not use the dynamic table.
type literals struct {
	known [maxLiterals]knownLiteral
	next  int
}

type knownLiteral struct {
	bytes []byte
	field field
}

func (l *literals) find(raw []byte) *field {
	for i := range l.known {
		if k := &l.known[i]; bytes.Equal(k.bytes, raw) {
			return &k.field
		}
	}
	return nil
}

func (l *literals) add(raw []byte, f field) {
	f.name, f.value = bytes.Clone(f.name), bytes.Clone(f.value)
	l.known[l.next] = knownLiteral{bytes.Clone(raw), f}
	l.next = (l.next + 1) % maxLiterals
}
