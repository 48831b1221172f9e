package wire

import "google.golang.org/protobuf/encoding/protowire"

// AppendText appends a string field of type Bytes. The string must be valid UTF-8.
func AppendText(b []byte, tag uint64, s string) []byte {
	return append(appendVarint(appendVarint(b, tag), uint64(len(s))), s...)
}

// AppendEntry appends the fields that ReadEntry reads. Both texts must be valid UTF-8.
func AppendEntry(b []byte, key, value string) []byte {
	return AppendText(AppendText(b, entryKey, key), entryValue, value)
}

// AppendVarint appends a field of type Varint.
func AppendVarint(b []byte, tag, v uint64) []byte {
	return appendVarint(appendVarint(b, tag), v)
}

// AppendFixed64 appends a field of type Fixed64.
func AppendFixed64(b []byte, tag, v uint64) []byte {
	return protowire.AppendFixed64(appendVarint(b, tag), v)
}

// appendVarint is protowire.AppendVarint, small enough to be inlined for the numbers of one byte: most of them.
func appendVarint(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	return protowire.AppendVarint(b, v)
}

// Begin begins a field of type Bytes with a message or a text. What is appended until End is called with begun is its
// content.
//
//	b, begun := wire.Begin(b, tag)
//	b = wire.AppendVarint(b, other, 1)
//	b = wire.End(b, begun)
func Begin(b []byte, tag uint64) (_ []byte, begun int) {
	b = append(appendVarint(b, tag), 0) // the size precedes the content; of most messages, it has one byte
	return b, len(b)
}

// End ends a field that Begin has begun.
func End(b []byte, begun int) []byte {
	size := len(b) - begun
	if size < 0x80 {
		b[begun-1] = byte(size)
		return b
	}
	for range protowire.SizeVarint(uint64(size)) - 1 {
		b = append(b, 0)
	}
	copy(b[len(b)-size:], b[begun:begun+size])
	protowire.AppendVarint(b[:begun-1], uint64(size))
	return b
}

// AppendMessage appends a field of type Bytes with a message, whose fields fields appends.
func AppendMessage(b []byte, tag uint64, fields func([]byte) []byte) []byte {
	b, begun := Begin(b, tag)
	return End(fields(b), begun)
}
