package loadgen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/net/http2/hpack"
)

// blocks makes the header blocks of one connection.
type blocks struct {
	kind    Client
	fields  []field
	timeout time.Duration
	// key returns the key of the next request, for keyHeader. keyHeader is "" if the message has the key.
	key       func() uint64
	keyHeader string
	encoder   *hpack.Encoder // writes to block
	block     bytes.Buffer
	random    *rand.Rand
	// made counts the blocks since the table was empty. If all fields stay the same, the second block has all of them as
	// indexes, and so is that of all further requests.
	made int
}

func newBlocks(p *Plan, l *lane) *blocks {
	b := &blocks{
		kind: p.Client, fields: p.fields(), timeout: p.Timeout, key: l.draw, keyHeader: p.Message.keyHeader,
		random: rand.New(rand.NewPCG(l.seed, l.seed)),
	}
	if b.keyHeader != "" {
		b.kind = Indexed
	}
	b.encoder = hpack.NewEncoder(&b.block)
	return b
}

// limitTable keeps the table within the size that the peer allows.
func (b *blocks) limitTable(size uint32) {
	if limit := min(size, tableSize); limit != b.encoder.MaxDynamicTableSize() {
		b.encoder.SetMaxDynamicTableSize(limit)
		b.made = 0
	}
}

// next returns the header block of the next request. It is valid until the next call.
func (b *blocks) next() []byte {
	if b.made >= 2 && (b.kind == Envoy || b.kind == Indexed) && b.keyHeader == "" {
		return b.block.Bytes()
	}
	b.made++
	b.block.Reset()
	for _, f := range b.fields {
		switch {
		case f.name == b.keyHeader:
			var digits [keyDigits]byte
			putKey(digits[:], b.key())
			f.value = string(digits[:])
		case f.name == "traceparent":
			f.value = fmt.Sprintf("00-%016x%016x-%016x-01", b.random.Uint64(), b.random.Uint64(), b.random.Uint64())
		case f.name == "grpc-timeout" && b.kind == Deadline:
			f.value = strconv.FormatInt(b.timeout.Microseconds()-b.random.Int64N(1000), 10) + "u" // some is over
		}
		inFull, begin := f.name == ":path" && (b.kind == Envoy || b.kind == Traced), b.block.Len()
		_ = b.encoder.WriteField(hpack.HeaderField{Name: f.name, Value: f.value, Sensitive: inFull}) // to a buffer
		if inFull {
			// The encoder writes it as never indexed. Without this bit, it is not indexed (RFC 7541, 6.2.2).
			b.block.Bytes()[begin] &^= 0x10
		}
	}
	return b.block.Bytes()
}
