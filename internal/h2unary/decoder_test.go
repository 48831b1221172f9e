package h2unary

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2/hpack"
)

// FuzzDecoder compares the decoder with that of x/net, which is the oracle. The input is a list of blocks for one
// connection: the length of each, and its bytes.
func FuzzDecoder(f *testing.F) {
	for _, blocks := range recorded() {
		f.Add(joinBlocks(blocks))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		f.Add(joinBlocks(randomBlocks(r, 20)))
	}
	f.Fuzz(func(t *testing.T, input []byte) { compare(t, splitBlocks(input)) })
}

// TestDecoderWalk does so for random blocks that are mostly valid.
func TestDecoderWalk(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		if compare(t, randomBlocks(r, 40)); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// compare decodes the blocks of a connection by both decoders, and through the cache of blocks. It ends at an error.
func compare(t *testing.T, input [][]byte) {
	t.Helper()
	oracle := hpack.NewDecoder(maxTable, nil)
	own := decoder{table: table{limit: maxTable}}
	cached := Conn{server: &Server{}}
	cached.decoder.table.limit = maxTable
	cached.reader.methods = map[string]int{"/a": 1, "/": 2}
	plain := headReader{methods: cached.reader.methods}
	for i, block := range input {
		want, oracleErr := oracle.DecodeFull(block)
		plain.reset()
		var got []hpack.HeaderField
		_, err := own.decode(block, func(f *field) {
			got = append(got, hpack.HeaderField{Name: string(f.name), Value: string(f.value)})
			if kind := newField(f.name, f.value).kind; f.kind != kind {
				t.Errorf("block %d: %q %q has the kind %d, want %d", i, f.name, f.value, f.kind, kind)
			}
			plain.visit(f)
		})
		h, failed := cached.decode(block)
		if (failed == nil) != (err == nil) {
			t.Errorf("block %d: with the cache %v, without %v", i, failed, err)
		}
		if errors.Is(err, errTooLarge) || errors.Is(err, errLateResize) {
			return // x/net has no such bounds, and lets an update follow a field while the table is empty
		}
		if (err == nil) != (oracleErr == nil) {
			t.Fatalf("block %d, %x: got %v, x/net %v", i, block, err, oracleErr)
		}
		if err != nil {
			return
		}
		for k := range want {
			want[k].Sensitive = false
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("block %d, %x: %s", i, block, d)
		}
		if want := plain.finish(); !reflect.DeepEqual(h, want) {
			t.Fatalf("block %d, %x: with the cache %+v, without %+v", i, block, h, want)
		}
	}
}

// recorded has the blocks that clients send, one after the other: of Envoy, of Envoy with traces, and traps of caches.
func recorded() (all [][][]byte) {
	for _, traced := range []bool{false, true} {
		var blocks [][]byte
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for i := range 5 {
			for _, f := range []hpack.HeaderField{
				{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/envoy.service.ratelimit.v3.RateLimitService/Should"},
				{Name: ":authority", Value: "ratelimit"}, {Name: "te", Value: "trailers"}, {Name: "grpc-timeout", Value: "20m"},
				{Name: "content-type", Value: "application/grpc"},
			} {
				if f.Name == ":path" { // Envoy sends it as a literal without indexing
					b.WriteByte(0x04)
					b.WriteByte(0x80 | byte(hpack.HuffmanEncodeLength(f.Value)))
					b.Write(hpack.AppendHuffmanString(nil, f.Value))
					continue
				}
				_ = e.WriteField(f) // to memory
			}
			if traced {
				_ = e.WriteField(hpack.HeaderField{Name: "traceparent", Value: string(rune('a'+i)) + "00-4bf92f3577"}) // as above
			}
			blocks = append(blocks, bytes.Clone(b.Bytes()))
			b.Reset()
		}
		all = append(all, blocks)
	}
	for _, trap := range [][]string{
		{"\x40\x01a\x011", "\xbe", "\x40\x01b\x012", "\xbe"}, // equal blocks mean different fields
		{"\x40\x01a\x011", "\x40\x01a\x011", "\xbe\xbf"},     // an insertion inserts each time
		{"\x40\x01a\x011", "\xbe", "\x20", "\xbe"},           // a size update empties the table
		{"\x40\x01a\x011", "\xbe\x20"},                       // a size update at the end
		{"", "", "\x82", ""}, {"\x80"}, {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}, {"\x3f\xe1\x1f"}, {"\x3f\xe2\x1f"},
		{"\x00\x01a\x81\xff"}, {"\x00\x01a\x82\xff\xff"}, {"\x00\x7f"}, {"\x7e\x01x"},
	} {
		var blocks [][]byte
		for _, block := range trap {
			blocks = append(blocks, []byte(block))
		}
		all = append(all, blocks)
	}
	return all
}

// randomBlocks returns blocks of a few instructions from a small alphabet, so that equal ones are frequent.
func randomBlocks(r *rand.Rand, most int) (blocks [][]byte) {
	for range 1 + r.IntN(most) {
		var b []byte
		if r.IntN(20) == 0 {
			b = append(b, [...]string{"\x20", "\x3f\xe1\x1f", "\x3f\x80\x01"}[r.IntN(3)]...)
		}
		for range r.IntN(6) {
			value := [...]string{"", "x", "/", "\x84\xf1\xe3\xc2\xe5", "POST"}[r.IntN(5)]
			coded := append([]byte{byte(len(value))}, value...)
			if value != "" && value[0] == 0x84 {
				coded = []byte(value)
			}
			switch r.IntN(6) {
			case 0, 1:
				b = append(b, 0x80|byte(1+r.IntN(70)))
			case 2:
				b = append(append(b, 0x40, 1, "abc"[r.IntN(3)]), coded...)
			case 3:
				b = append(append(b, 0x40|byte(1+r.IntN(62))), coded...)
			case 4:
				b = append(append(b, [...]byte{0x04, 0x01, 0x14}[r.IntN(3)]), coded...)
			case 5:
				long := bytes.Repeat([]byte("y"), r.IntN(120))
				b = append(append(append(b, 0x40, 1, 'z'), byte(len(long))), long...)
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func joinBlocks(blocks [][]byte) (input []byte) {
	for _, b := range blocks {
		for len(b) > 255 {
			b = b[:255]
		}
		input = append(append(input, byte(len(b))), b...)
	}
	return input
}

func splitBlocks(input []byte) (blocks [][]byte) {
	for len(input) > 0 {
		n := min(int(input[0]), len(input)-1)
		blocks, input = append(blocks, input[1:1+n]), input[1+n:]
	}
	return blocks
}

// TestBounds checks that a block of few bytes cannot become large.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		block []byte
	}{
		{"a large field that is used again and again", append(append([]byte{0x40, 1, 'a', 0x7f, 0xa1, 0x1d},
			make([]byte, 3872)...), bytes.Repeat([]byte{0xbe}, 20)...)},
		{"many fields", bytes.Repeat([]byte{0x82}, 101)},
	} {
		d := decoder{table: table{limit: maxTable}}
		if _, err := d.decode(c.block, func(*field) {}); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v, want %v", c.name, err, errTooLarge)
		}
	}
}

// TestTableMemory inserts fields of 33 bytes, each of which evicts a large one. They do not keep its memory.
func TestTableMemory(t *testing.T) {
	t.Parallel()
	tab := table{limit: maxTable}
	small := newField([]byte("a"), nil)
	for kept := range 100 {
		large := newField([]byte("b"), make([]byte, maxTable-kept*small.size()-fieldOverhead-1))
		tab.insert(large)
		for range kept + 1 {
			tab.insert(small)
		}
	}
	memory := 0
	for _, f := range tab.fields {
		memory += cap(f.name)
	}
	if memory > 2*maxTable {
		t.Errorf("the table has %d bytes, want at most %d", memory, 2*maxTable)
	}
}

// BenchmarkDecode measures header blocks of Envoy: equal ones, and ones with a new traceparent each.
func BenchmarkDecode(b *testing.B) {
	for i, name := range []string{"equal", "traced"} {
		b.Run(name, func(b *testing.B) {
			c := Conn{server: &Server{}}
			c.decoder.table.limit = maxTable
			blocks := recorded()[i]
			for _, block := range blocks[:4] {
				if _, failed := c.decode(block); failed != nil {
					b.Fatal(failed)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, failed := c.decode(blocks[4]); failed != nil {
					b.Fatal(failed)
				}
			}
		})
	}
}
