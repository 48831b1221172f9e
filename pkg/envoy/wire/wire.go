package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// The types of fields in tags (number<<3 | type). A field with another type is ignored, as by the generated code.
const (
	Varint  = uint64(protowire.VarintType)
	Fixed64 = uint64(protowire.Fixed64Type)
	Bytes   = uint64(protowire.BytesType)
)

// Field is one field of a message.
type Field struct {
	// Tag is number<<3 | type.
	Tag uint64
	// Text is the value of a field of type Bytes: a string or a message.
	Text string
	// Number is the value of a field of type Varint or Fixed64.
	Number uint64
}

var errMalformed = &Error{Internal, "malformed protobuf message"}

// EachField calls f for the fields of a message in order, until f returns an error. A malformed message is an *Error.
func EachField(msg string, f func(Field) error) error {
	var bytes []byte // a copy of msg from the first field that protowire reads
	for len(msg) > 0 {
		tag, n := consumeVarint(msg)
		number, kind := protowire.DecodeTag(tag)
		if n < 0 || number < protowire.MinValidNumber {
			return errMalformed
		}
		msg = msg[n:]
		v := Field{Tag: tag}
		switch kind {
		case protowire.VarintType:
			v.Number, n = consumeVarint(msg)
		case protowire.Fixed64Type:
			v.Number, n = consumeFixed64(msg)
		case protowire.BytesType:
			v.Text, n = consumeText(msg)
		default:
			if bytes == nil {
				bytes = []byte(msg)
			}
			n = protowire.ConsumeFieldValue(number, kind, bytes[len(bytes)-len(msg):])
		}
		if n < 0 {
			return errMalformed
		}
		msg = msg[n:]
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

// The fields of an entry, as tags.
const (
	entryKey   = 1<<3 | Bytes
	entryValue = 2<<3 | Bytes
)

// ReadEntry reads two text fields with the numbers 1 and 2: key and value in many messages, such as map entries.
func ReadEntry(msg string) (key, value string, err error) {
	err = EachField(msg, func(f Field) error {
		switch f.Tag {
		case entryKey:
			key = f.Text
		case entryValue:
			value = f.Text
		}
		return nil
	})
	return key, value, err
}

// These are protowire's functions for strings, so that a message is copied once and not for each field.

func consumeVarint(s string) (v uint64, n int) {
	for shift := 0; n < len(s) && shift < 64; shift += 7 {
		b := s[n]
		n++
		if shift == 63 && b > 1 {
			return 0, -1
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, n
		}
	}
	return 0, -1
}

func consumeFixed64(s string) (v uint64, n int) {
	const size = 8
	if len(s) < size {
		return 0, -1
	}
	return binary.LittleEndian.Uint64([]byte(s[:size])), size
}

func consumeText(s string) (string, int) {
	size, n := consumeVarint(s)
	if n < 0 || size > uint64(len(s)-n) {
		return "", -1
	}
	return s[n : n+int(size)], n + int(size)
}
