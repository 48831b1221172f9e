package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/extauthz/extauthz/internal/texts"
)

// The types of fields in tags (number<<3 | type). A field with another type is ignored, as by the generated code.
const (
	Varint  = uint64(protowire.VarintType)
	Fixed64 = uint64(protowire.Fixed64Type)
	Bytes   = uint64(protowire.BytesType)
)

// Field is one field of a message. It has the value that belongs to the type of the tag; the other one has no meaning.
type Field struct {
	// Tag is number<<3 | type.
	Tag uint64
	// Text is the value of a field of type Bytes: a string or a message.
	Text string
	// Number is the value of a field of type Varint or Fixed64.
	Number uint64
}

var errMalformed = &Error{Internal, "malformed protobuf message"}

// Reader reads the fields of a message in order. Their texts are parts of the message.
//
//	r := wire.Read(msg)
//	for r.Next() {
//		switch r.Tag {
//		}
//	}
//	return r.Err()
type Reader struct {
	// Field is the field that Next has read.
	Field

	rest      string
	malformed bool
}

// Read returns a reader of a message.
func Read(msg string) Reader { return Reader{rest: msg} }

// Next reads the next field. It returns false at the end of the message, and if the message is malformed.
func (r *Reader) Next() bool {
	if len(r.rest) == 0 {
		return false
	}
	tag, n := uint64(r.rest[0]), 1
	if tag >= 0x80 { // rarely
		tag, n = protowire.ConsumeVarint(texts.Bytes(r.rest))
	}
	if number := tag >> 3; n < 0 || number-1 >= uint64(protowire.MaxValidNumber) {
		return r.stop()
	}
	value := r.rest[n:]
	r.Tag = tag
	switch tag & 7 {
	case Bytes:
		var text []byte
		text, n = protowire.ConsumeBytes(texts.Bytes(value))
		r.Text = texts.View(text)
	case Varint:
		r.Number, n = protowire.ConsumeVarint(texts.Bytes(value))
	case Fixed64:
		r.Number, n = protowire.ConsumeFixed64(texts.Bytes(value))
	default:
		number, kind := protowire.DecodeTag(tag)
		n = protowire.ConsumeFieldValue(number, kind, texts.Bytes(value))
	}
	if n < 0 {
		return r.stop()
	}
	r.rest = value[n:]
	return true
}

func (r *Reader) stop() bool {
	r.rest, r.malformed = "", true
	return false
}

// Err returns an *Error if the message is malformed. Call it after Next has returned false.
func (r *Reader) Err() error {
	if r.malformed {
		return errMalformed
	}
	return nil
}

// Each calls read with each field of type Bytes that has the tag, and stops at an error of it. A malformed message is
// an error.
func Each(msg string, tag uint64, read func(text string) error) error {
	r := Read(msg)
	for r.Next() {
		if r.Tag != tag {
			continue
		}
		if err := read(r.Text); err != nil {
			return err
		}
	}
	return r.Err()
}

// The fields of an entry, as tags.
const (
	entryKey   = 1<<3 | Bytes
	entryValue = 2<<3 | Bytes
)

// ReadEntry reads two text fields with the numbers 1 and 2: key and value in many messages, such as map entries. An
// Any has its type and its value there.
func ReadEntry(msg string) (key, value string, err error) {
	if key, value, ok := shortEntry(msg); ok {
		return key, value, nil
	}
	r := Read(msg)
	for r.Next() {
		switch r.Tag {
		case entryKey:
			key = r.Text
		case entryValue:
			value = r.Text
		}
	}
	return key, value, r.Err()
}

// shortEntry reads an entry as Envoy writes almost all of them: the key and the value, each shorter than 128 bytes.
func shortEntry(msg string) (key, value string, ok bool) {
	const prefix = 2 // of a field: its tag and its length
	if len(msg) < 2*prefix || msg[0] != byte(entryKey) || msg[1] >= 0x80 {
		return "", "", false
	}
	end := prefix + int(msg[1])
	if end+prefix > len(msg) || msg[end] != byte(entryValue) || msg[end+1] >= 0x80 {
		return "", "", false
	}
	key, value = msg[prefix:end], msg[end+prefix:]
	return key, value, len(value) == int(msg[end+1])
}
