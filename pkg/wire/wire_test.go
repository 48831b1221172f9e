package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/extauthz/extauthz/pkg/wire"
)

// TestAppend writes a google.protobuf.Value with a list, which the generated code must read. The size of the text
// needs one byte, two and three.
func TestAppend(t *testing.T) {
	for _, length := range []int{0, 1, 100, 127, 128, 16383, 16384, 1 << 20} {
		text := strings.Repeat("x", length)
		b := wire.AppendMessage(nil, 6<<3|wire.Bytes, func(b []byte) []byte {
			value := func(b []byte, content func([]byte) []byte) []byte {
				return wire.AppendMessage(b, 1<<3|wire.Bytes, content)
			}
			b = value(b, func(b []byte) []byte { return wire.AppendVarint(b, 4<<3|wire.Varint, 1) })
			b = value(b, func(b []byte) []byte { return wire.AppendFixed64(b, 2<<3|wire.Fixed64, 0x3ff8<<48) })
			return value(b, func(b []byte) []byte { return wire.AppendText(b, 3<<3|wire.Bytes, text) })
		})
		got := new(structpb.Value)
		if err := proto.Unmarshal(b, got); err != nil {
			t.Fatalf("%d bytes of text: %v", length, err)
		}
		want := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
			structpb.NewBoolValue(true), structpb.NewNumberValue(1.5), structpb.NewStringValue(text),
		}})
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%d bytes of text (-want +got)\n%s", length, diff)
		}
	}
}

// TestRead checks that a message that ends within a field is an error, and that fields of any type are passed
// over.
func TestRead(t *testing.T) {
	whole := "\x08\x96\x01" + "\x11\x01\x00\x00\x00\x00\x00\x00\x00" + "\x1a\x03abc" +
		"\x25\x01\x00\x00\x00" + "\x2b\x08\x01\x2c"
	ends := map[int]int{0: 0, 3: 1, 12: 2, 17: 3, 22: 4, len(whole): 5} // where fields end, and the number of fields
	for n := range len(whole) + 1 {
		fields, err := count(whole[:n])
		want, complete := ends[n]
		if (err == nil) != complete || complete && fields != want {
			t.Errorf("%d bytes: %d fields, %v", n, fields, err)
		}
	}
}

// TestManyGroups checks that fields of types that Envoy never sends take no more time than others. With a copy of the
// rest for each, it would take minutes.
func TestManyGroups(t *testing.T) {
	const n = 1 << 20
	fields, err := count(strings.Repeat("\x2b\x2c", n))
	if err != nil || fields != n {
		t.Errorf("%d fields, %v; want %d", fields, err, n)
	}
}

// count returns the number of fields before the end of a message, or before the malformed part.
func count(message string) (fields int, err error) {
	r := wire.Read(message)
	for r.Next() {
		fields++
	}
	return fields, r.Err()
}
