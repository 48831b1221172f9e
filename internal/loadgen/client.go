package loadgen

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// Client is the kind of client whose header blocks the requests have. It decides what a server has to decode.
type Client uint8

// The kinds of clients.
const (
	// Envoy sends :path in full in each request, and all other fields as indexes.
	Envoy Client = iota
	// Traced is Envoy with tracing: each request also has another traceparent, which shifts all indexes.
	Traced
	// Deadline is grpc-go with deadlines: each request has another grpc-timeout, and all other fields are indexes.
	Deadline
	// Indexed is a client that sends all fields as indexes, so that all blocks but the first are equal.
	Indexed
)

var clientNames = [...]string{Envoy: "envoy", Traced: "traced", Deadline: "deadline", Indexed: "indexed"}

// String returns the name of the kind.
func (c Client) String() string { return clientNames[c] }

// ClientNames returns the names of all kinds.
func ClientNames() []string { return clientNames[:] }

// ParseClient reads the name of a kind.
func ParseClient(name string) (Client, error) {
	for c, n := range clientNames {
		if n == name {
			return Client(c), nil
		}
	}
	return 0, fmt.Errorf("want one of %v", clientNames)
}

// fields are those that the client sends to a method, in its order. TestBlocksOfEnvoy compares them with a real Envoy.
func (c Client) fields(path, authority, scheme string) []hpack.HeaderField {
	field := func(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }
	if c == Deadline {
		return []hpack.HeaderField{
			field(":method", "POST"), field(":scheme", scheme), field(":path", path), field(":authority", authority),
			field("content-type", "application/grpc"), field("user-agent", "grpc-go/1.85.0"), field("te", "trailers"),
			field("grpc-timeout", ""),
		}
	}
	fields := []hpack.HeaderField{
		field(":method", "POST"), field(":path", path), field(":authority", authority), field(":scheme", scheme),
		field("te", "trailers"), field("grpc-timeout", "500m"), field("content-type", "application/grpc"),
	}
	if c == Traced {
		fields = append(fields, field("traceparent", ""), field("tracestate", ""))
	}
	return append(fields, field("x-envoy-internal", "true"), field("x-forwarded-for", "192.0.2.2"),
		field("x-envoy-expected-rq-timeout-ms", "500"))
}

// blocks makes the header blocks of one connection.
type blocks struct {
	kind   Client
	fields []hpack.HeaderField
	// path is :path as a literal without indexing. It changes no table, so x/net's encoder need not know of it.
	path    []byte
	encoder *hpack.Encoder
	block   []byte // the last one
	random  *rand.Rand
	// made counts the blocks since the encoder's table was empty. If all fields stay the same, the second block has all
	// of them as indexes, and so is that of all further requests.
	made int
}

func newBlocks(kind Client, path, authority, scheme string, seed uint64) *blocks {
	const literalPath = 0x04 // RFC 7541, 6.2.2, with the name :path of the static table
	b := &blocks{kind: kind, fields: kind.fields(path, authority, scheme), random: rand.New(rand.NewPCG(seed, seed))}
	b.path = appendHuffman([]byte{literalPath}, path)
	b.encoder = hpack.NewEncoder(b)
	return b
}

// Write implements io.Writer for the encoder.
func (b *blocks) Write(p []byte) (int, error) {
	b.block = append(b.block, p...)
	return len(p), nil
}

// limitTable keeps the table of the encoder within the size that the peer allows.
func (b *blocks) limitTable(size uint32) {
	b.encoder.SetMaxDynamicTableSizeLimit(size)
	b.made = 0
}

// next returns the header block of the next request. It is valid until the next call.
func (b *blocks) next() []byte {
	if b.made >= 2 && (b.kind == Envoy || b.kind == Indexed) {
		return b.block
	}
	b.made++
	b.block = b.block[:0]
	for _, f := range b.fields {
		switch f.Name {
		case ":path":
			if b.kind == Envoy || b.kind == Traced {
				b.block = append(b.block, b.path...)
				continue
			}
		case "traceparent":
			f.Value = b.traceparent()
		case "grpc-timeout":
			if b.kind == Deadline {
				f.Value = strconv.Itoa(1_900_000+b.random.IntN(99_999)) + "u" // just below 2 s
			}
		}
		_ = b.encoder.WriteField(f) // Write does not fail
	}
	return b.block
}

// traceparent returns another header of W3C Trace Context.
func (b *blocks) traceparent() string {
	text := []byte("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	for _, at := range []int{3, 19, 36} {
		putHex(text[at:at+16], b.random.Uint64())
	}
	return string(text)
}

func putHex(digits []byte, v uint64) {
	for i := range digits {
		digits[i] = "0123456789abcdef"[v>>(60-4*i)&15]
	}
}

// appendHuffman appends a string of HPACK.
func appendHuffman(b []byte, s string) []byte {
	const huffman = 0x80
	n := hpack.HuffmanEncodeLength(s)
	if n < 127 {
		return hpack.AppendHuffmanString(append(b, huffman|byte(n)), s)
	}
	b = append(b, huffman|127)
	for n -= 127; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return hpack.AppendHuffmanString(append(b, byte(n)), s)
}
