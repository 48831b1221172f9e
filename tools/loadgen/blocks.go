package loadgen

import (
	"encoding/binary"
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
	fields  []placed
	timeout time.Duration
	// key returns the key of the next request, for keyHeader. keyHeader is "" if the message has the key.
	key       func() uint64
	keyHeader string
	limit     int  // of the size of the table
	added     sum  // to the table so far
	resize    bool // the next block begins with the size of the table
	block     []byte
	random    *rand.Rand
	// made counts the blocks since the table was empty. If all fields stay the same, the second block has all of them as
	// indexes, and so is that of all further requests.
	made int
}

// placed is a field with its places in the tables of HPACK.
type placed struct {
	field
	whole, named int // indexes of the field and of its name in the static table, 0 if they are not there
	before       sum // what was added to the table before the field was, last
}

// sum is a number of entries of the table, and their size.
type sum struct{ entries, size int }

// forgotten is more than any table holds: with so much added, all that came before has left it.
const forgotten = tableSize + 1

// static has the indexes of fields and of names in the static table (RFC 7541, A).
var static = map[field]int{
	{":authority", ""}: 1, {":method", ""}: 2, {":method", "GET"}: 2, {":method", "POST"}: 3, {":path", ""}: 4,
	{":scheme", ""}: 6, {":scheme", "http"}: 6, {":scheme", "https"}: 7, {"content-type", ""}: 31, {"user-agent", ""}: 58,
}

func newBlocks(p *Plan, l *lane) *blocks {
	b := &blocks{
		kind: p.Client, timeout: p.Timeout, limit: tableSize, added: sum{size: forgotten},
		key: l.draw, keyHeader: p.Message.keyHeader, random: rand.New(rand.NewPCG(l.seed, l.seed)),
	}
	if b.keyHeader != "" {
		b.kind = Indexed
	}
	for _, f := range p.fields() {
		b.fields = append(b.fields, placed{field: f, whole: static[f], named: static[field{name: f.name}]})
	}
	return b
}

// limitTable keeps the table within the size that the peer allows.
func (b *blocks) limitTable(size uint32) {
	if limit := int(min(size, tableSize)); limit != b.limit {
		b.limit, b.resize, b.made = limit, true, 0
		b.added.size += forgotten
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
		b.block, b.resize = appendNumber(b.block, 0x20, 5, b.limit), false
	}
	for i := range b.fields {
		f := &b.fields[i]
		switch {
		case f.name == ":path" && (b.kind == Envoy || b.kind == Traced):
			b.block = appendText(appendNumber(b.block, 0, 4, f.named), f.value) // without indexing
		case f.name == b.keyHeader:
			var digits [keyDigits]byte
			putKey(digits[:], b.key())
			b.add(f, string(digits[:]))
		case f.name == "traceparent":
			b.add(f, b.traceparent())
		case f.name == "grpc-timeout" && b.kind == Deadline:
			b.add(f, strconv.FormatInt(b.timeout.Microseconds()-b.random.Int64N(1000), 10)+"u") // some is over
		case f.whole > 0:
			b.block = appendNumber(b.block, 0x80, 7, f.whole)
		case b.index(f) > 0:
			b.block = appendNumber(b.block, 0x80, 7, b.index(f))
		default:
			b.add(f, f.value)
		}
	}
	return b.block
}

// index returns where a field that was added to the table is there, 0 if it has left.
func (b *blocks) index(f *placed) int {
	if b.added.size-f.before.size > b.limit {
		return 0
	}
	return 61 + b.added.entries - f.before.entries // the newest has the index after the static table
}

// add writes a field as a literal with incremental indexing, with the index of its name if there is one.
func (b *blocks) add(f *placed, value string) {
	name := f.named
	if name == 0 {
		name = b.index(f)
	}
	b.block = appendNumber(b.block, 0x40, 6, name)
	if name == 0 {
		b.block = appendText(b.block, f.name)
	}
	b.block = appendText(b.block, value)
	f.before = b.added
	b.added.entries++
	b.added.size += len(f.name) + len(value) + 32 // the size of an entry, RFC 7541, 4.1
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

// appendNumber appends a number with a prefix of some bits, after the bits of kind.
func appendNumber(b []byte, kind byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, kind|byte(n))
	}
	return binary.AppendUvarint(append(b, kind|byte(most)), uint64(n-most))
}

// appendText appends a string, in the code of Huffman if that is shorter.
func appendText(b []byte, s string) []byte {
	const huffman = 0x80
	if n := hpack.HuffmanEncodeLength(s); n < uint64(len(s)) {
		return hpack.AppendHuffmanString(appendNumber(b, huffman, 7, int(n)), s)
	}
	return append(appendNumber(b, 0, 7, len(s)), s...)
}
