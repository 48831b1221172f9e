package loadgen

import (
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/net/http2/hpack"
)

// blocks makes the header blocks of one connection. It is an encoder of HPACK (RFC 7541) for one list of fields, so it
// knows where each of them is in the table. x/net's encoder looks each of them up, which takes more CPU than the rest
// of a request. TestBlocks reads the blocks with x/net's decoder.
type blocks struct {
	kind    Client
	fields  []field
	timeout time.Duration
	// key returns the key of the next request, for keyHeader. keyHeader is "" if the message has the key.
	key       func() uint64
	keyHeader string
	// whole and names are the indexes of the fields and of their names in the static table, 0 if they are not there.
	whole, names []int
	// added is when each field was added to the table last, as a number of entries, or never.
	added  []int
	table  table
	resize bool // the next block begins with the size of the table
	block  []byte
	random *rand.Rand
	// made counts the blocks since the table was empty. If all fields stay the same, the second block has all of them as
	// indexes, and so is that of all further requests.
	made int
}

const never = -1

func newBlocks(p *Plan, l *lane) *blocks {
	b := &blocks{
		kind: p.Client, fields: p.fields(), timeout: p.Timeout, table: table{limit: 4096},
		key: l.draw, keyHeader: p.Message.keyHeader, random: rand.New(rand.NewPCG(l.seed, l.seed)),
	}
	if b.keyHeader != "" {
		b.kind = Indexed
	}
	for _, f := range b.fields {
		whole, name := f.static()
		b.whole, b.names, b.added = append(b.whole, whole), append(b.names, name), append(b.added, never)
	}
	return b
}

// limitTable keeps the table within the size that the peer allows.
func (b *blocks) limitTable(size uint32) {
	if limit := int(min(size, 4096)); limit != b.table.limit {
		b.table.limit, b.resize, b.made = limit, true, 0
		b.table.makeRoom(0)
	}
}

// next returns the header block of the next request. It is valid until the next call.
func (b *blocks) next() []byte {
	if b.made >= 2 && (b.kind == Envoy || b.kind == Indexed) && b.keyHeader == "" {
		return b.block
	}
	b.made++
	b.block = b.block[:0]
	if b.resize {
		b.block, b.resize = appendNumber(b.block, 0x20, 5, b.table.limit), false
	}
	for i, f := range b.fields {
		switch {
		case f.name == ":path" && (b.kind == Envoy || b.kind == Traced):
			b.block = appendText(appendNumber(b.block, 0, 4, b.names[i]), f.value) // without indexing
		case f.name == b.keyHeader:
			var digits [keyDigits]byte
			putKey(digits[:], b.key())
			b.add(i, string(digits[:]))
		case f.name == "traceparent":
			b.add(i, b.traceparent())
		case f.name == "grpc-timeout" && b.kind == Deadline:
			b.add(i, strconv.FormatInt(b.timeout.Microseconds()-b.random.Int64N(1000), 10)+"u") // some is over
		case b.whole[i] > 0:
			b.block = appendNumber(b.block, 0x80, 7, b.whole[i])
		case b.table.has(b.added[i]):
			b.block = appendNumber(b.block, 0x80, 7, b.table.index(b.added[i]))
		default:
			b.add(i, f.value)
		}
	}
	return b.block
}

// add writes a field as a literal with incremental indexing, with the index of its name if there is one.
func (b *blocks) add(i int, value string) {
	name, index := b.fields[i].name, b.names[i]
	if index == 0 && b.table.has(b.added[i]) {
		index = b.table.index(b.added[i])
	}
	b.block = appendNumber(b.block, 0x40, 6, index)
	if index == 0 {
		b.block = appendText(b.block, name)
	}
	b.block = appendText(b.block, value)
	b.added[i] = b.table.add(len(name) + len(value) + 32) // the size of an entry, RFC 7541, 4.1
}

// traceparent returns another header of W3C Trace Context.
func (b *blocks) traceparent() string {
	text := []byte("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	for _, at := range []int{3, 19, 36} {
		v := b.random.Uint64()
		for i := range 16 {
			text[at+i] = "0123456789abcdef"[v>>(4*i)&15]
		}
	}
	return string(text)
}

// static returns the indexes of the field and of its name in the static table (RFC 7541, A), 0 if they are not there.
func (f field) static() (whole, name int) {
	switch f {
	case field{":method", "GET"}:
		return 2, 2
	case field{":method", "POST"}:
		return 3, 2
	case field{":scheme", "http"}:
		return 6, 6
	case field{":scheme", "https"}:
		return 7, 6
	}
	switch f.name {
	case ":authority":
		return 0, 1
	case ":path":
		return 0, 4
	case "content-type":
		return 0, 31
	case "user-agent":
		return 0, 58
	}
	return 0, 0
}

// table has the sizes of the entries of the dynamic table, the oldest first. Entries are named by how many came before.
type table struct {
	limit, size int
	sizes       []int
	oldest      int
}

func (t *table) has(entry int) bool { return entry >= t.oldest }

// index returns the index of an entry: the newest has that after the static table.
func (t *table) index(entry int) int { return 62 + t.oldest + len(t.sizes) - 1 - entry }

// add adds an entry of this size and returns its name.
func (t *table) add(size int) int {
	t.makeRoom(size)
	if size > t.limit {
		return never
	}
	t.sizes = append(t.sizes, size)
	t.size += size
	return t.oldest + len(t.sizes) - 1
}

func (t *table) makeRoom(size int) {
	for len(t.sizes) > 0 && t.size+size > t.limit {
		t.size -= t.sizes[0]
		t.sizes = t.sizes[1:]
		t.oldest++
	}
}

// appendNumber appends a number with a prefix of some bits, after the bits of kind.
func appendNumber(b []byte, kind byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, kind|byte(n))
	}
	b = append(b, kind|byte(most))
	for n -= most; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

// appendText appends a string, in the code of Huffman if that is shorter.
func appendText(b []byte, s string) []byte {
	const huffman = 0x80
	if n := hpack.HuffmanEncodeLength(s); n < uint64(len(s)) {
		return hpack.AppendHuffmanString(appendNumber(b, huffman, 7, int(n)), s)
	}
	return append(appendNumber(b, 0, 7, len(s)), s...)
}
