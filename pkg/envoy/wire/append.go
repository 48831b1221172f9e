package wire

import "google.golang.org/protobuf/encoding/protowire"

// AppendText appends a string field of type Bytes. The string must be valid UTF-8.
func AppendText(b []byte, tag uint64, s string) []byte {
	return protowire.AppendString(protowire.AppendVarint(b, tag), s)
}

// AppendEntry appends the fields that ReadEntry reads. Both texts must be valid UTF-8.
func AppendEntry(b []byte, key, value string) []byte {
	return AppendText(AppendText(b, entryKey, key), entryValue, value)
}

// AppendVarint appends a field of type Varint.
func AppendVarint(b []byte, tag, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendVarint(b, tag), v)
}

// AppendFixed64 appends a field of type Fixed64.
func AppendFixed64(b []byte, tag, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendVarint(b, tag), v)
}

// AppendMessage appends a field of type Bytes with a message, whose fields fields appends.
func AppendMessage(b []byte, tag uint64, fields func([]byte) []byte) []byte {
	b = protowire.AppendVarint(b, tag)
	begin := len(b)
	b = fields(b)
	size := len(b) - begin
	// The size precedes the message, but its length is known only now.
	for range protowire.SizeVarint(uint64(size)) {
		b = append(b, 0)
	}
	copy(b[len(b)-size:], b[begin:begin+size])
	protowire.AppendVarint(b[:begin], uint64(size))
	return b
}
