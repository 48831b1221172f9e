package wire_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/extauthz/extauthz/pkg/wire"
)

// FuzzReader compares the fields of any bytes with those that protowire reads.
func FuzzReader(f *testing.F) {
	for _, message := range []string{
		"", "\x08\x96\x01\x11\x01\x00\x00\x00\x00\x00\x00\x00\x1a\x03abc\x25\x01\x00\x00\x00\x2b\x08\x01\x2c",
		"\x00\x00", "\x2b\x2b\x2c", "\x2c", "\x0f", "\xfa\xff\xff\xff\x0f\x00", "\x82\x80\x80\x80\x10\x00", "\x8a\x00\x00",
		"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0a\x80\x00", "\x09\x00\x00\x00\x00\x00\x00\x00",
	} {
		f.Add([]byte(message))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		want, wellFormed := readAll(message)
		var got []wire.Field
		r := wire.Read(string(message))
		for r.Next() {
			field := wire.Field{Tag: r.Tag}
			switch r.Tag & 7 {
			case wire.Bytes:
				field.Text = r.Text
			case wire.Varint, wire.Fixed64:
				field.Number = r.Number
			}
			got = append(got, field)
		}
		if !slices.Equal(got, want) || (r.Err() == nil) != wellFormed {
			t.Errorf("%x: got %v, %v; want %v, well-formed %v", message, got, r.Err(), want, wellFormed)
		}
		if r.Next() {
			t.Errorf("%x: a field after the end", message)
		}
	})
}

// readAll reads the fields of a message by protowire, and reports whether all of it is well-formed.
func readAll(message []byte) (fields []wire.Field, wellFormed bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 || number > protowire.MaxValidNumber {
			return fields, false
		}
		message = message[n:]
		field := wire.Field{Tag: protowire.EncodeTag(number, kind)}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return fields, false
		}
		switch kind {
		case protowire.BytesType:
			text, _ := protowire.ConsumeBytes(message)
			field.Text = string(text)
		case protowire.VarintType:
			field.Number, _ = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			field.Number, _ = protowire.ConsumeFixed64(message)
		default:
		}
		fields, message = append(fields, field), message[n:]
	}
	return fields, true
}
