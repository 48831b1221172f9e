package wire

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// MaxDepth bounds the nesting of a Struct, because others choose it.
const MaxDepth = 32

// To the decoder, a struct within another one is three messages deeper, and a list two. It reads MaxDepth structs, and
// so mostLists lists.
const (
	mostMessages = 3 * MaxDepth
	mostLists    = mostMessages / 2
)

// MostValues bounds the values of a Struct that others choose. An empty one takes 6 bytes on the wire, 350 in a map.
const MostValues = 4096

// Fields of google.protobuf.Struct, Value and ListValue, as tags on the wire.
const (
	structFields = 1<<3 | Bytes
	fieldKey     = 1<<3 | Bytes
	fieldValue   = 2<<3 | Bytes
	listValues   = 1<<3 | Bytes

	valueNull   = 1<<3 | Varint
	valueNumber = 2<<3 | Fixed64
	valueString = 3<<3 | Bytes
	valueBool   = 4<<3 | Varint
	valueStruct = 5<<3 | Bytes
	valueList   = 6<<3 | Bytes
)

// ReadStruct reads a google.protobuf.Struct into fields. The error is for a message that is malformed, has a text that
// is not UTF-8, or is nested much deeper than MaxDepth.
func ReadStruct(msg string, fields map[string]any) error {
	var s structpb.Struct
	err := proto.UnmarshalOptions{RecursionLimit: mostMessages, DiscardUnknown: true}.Unmarshal([]byte(msg), &s)
	maps.Copy(fields, s.AsMap())
	return err
}

// single returns the value of a field of a Value that holds no other values; ok is false for another field.
func (f *Field) single() (value any, ok bool) {
	switch f.Tag {
	case valueNull:
		return nil, true
	case valueNumber:
		return math.Float64frombits(f.Number), true
	case valueString:
		return f.Text, true
	case valueBool:
		return f.Number != 0, true
	}
	return nil, false
}

// CountValues returns the number of values in a google.protobuf.Struct, also of those within its values as far as
// ReadStruct reads them. It returns an error for a malformed message. It takes no memory.
func CountValues(msg string) (n int, err error) {
	err = countFields(msg, mostLists, &n)
	return n, err
}

// countFields adds the number of values in a Struct to n. depth is how many structs and lists may be within each other
// there.
func countFields(msg string, depth int, n *int) error {
	return Each(msg, structFields, func(field string) error {
		*n++
		return Each(field, fieldValue, func(value string) error { return countWithin(value, depth, n) })
	})
}

// countWithin does as countFields for a Value, which does not count itself.
func countWithin(msg string, depth int, n *int) error {
	r := Read(msg)
	for r.Next() {
		var err error
		switch {
		case depth == 0: // ReadStruct does not read what is within
		case r.Tag == valueStruct:
			err = countFields(r.Text, depth-1, n)
		case r.Tag == valueList:
			err = Each(r.Text, listValues, func(item string) error {
				*n++
				return countWithin(item, depth-1, n)
			})
		}
		if err != nil {
			return err
		}
	}
	return r.Err()
}

// ValueAt returns the text, number or bool at a path of at least one name in a google.protobuf.Struct; nil for anything
// else. before is what it has returned for the previous part of the same Struct, nil without one. It takes no memory
// for other values.
func ValueAt(msg string, path []string, before any) any {
	r := Read(msg)
	for r.Next() {
		if r.Tag != structFields {
			continue
		}
		if name, _, _ := ReadEntry(r.Text); name != path[0] {
			continue
		}
		before = nil // the last field of a name holds
		_ = Each(r.Text, fieldValue, func(value string) error {
			before = valueBelow(value, path[1:], before)
			return nil
		})
	}
	return before
}

// valueBelow does as ValueAt for a path in a Value. Without names, that is the Value itself.
func valueBelow(msg string, path []string, before any) any {
	r := Read(msg)
	for r.Next() {
		single, ok := r.single()
		switch {
		case r.Tag == valueStruct && len(path) > 0:
			before = ValueAt(r.Text, path, before)
		case ok && len(path) == 0:
			before = single
		case ok, r.Tag == valueStruct, r.Tag == valueList:
			before = nil
		}
	}
	return before
}

// ValidText returns the text as valid UTF-8, which a protobuf message requires.
func ValidText(s string) string {
	if utf8.ValidString(s) { // faster than ToValidUTF8
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// AppendFields appends the fields of a Struct in the order of their names. AppendField lists the possible values.
func AppendFields(b []byte, fields map[string]any) []byte {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		b = AppendField(b, name, fields[name])
	}
	return b
}

// AppendField appends a field of a Struct. The value is a text, a bool, a number (int64, uint64 or float64), a list or
// map of such values, or a function that appends the fields of a Struct. Anything else becomes null.
func AppendField(b []byte, name string, v any) []byte {
	return AppendMessage(b, structFields, func(b []byte) []byte {
		b = AppendText(b, fieldKey, ValidText(name))
		return AppendMessage(b, fieldValue, func(b []byte) []byte { return appendValue(b, v) })
	})
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return AppendText(b, valueString, ValidText(v))
	case bool:
		return AppendVarint(b, valueBool, protowire.EncodeBool(v))
	case int64:
		return appendValue(b, float64(v))
	case uint64:
		return appendValue(b, float64(v))
	case float64:
		return AppendFixed64(b, valueNumber, math.Float64bits(v))
	case func([]byte) []byte:
		return AppendMessage(b, valueStruct, v)
	case map[string]any:
		return appendValue(b, func(b []byte) []byte { return AppendFields(b, v) })
	case []any:
		return AppendMessage(b, valueList, func(b []byte) []byte {
			for _, item := range v {
				b = AppendMessage(b, listValues, func(b []byte) []byte { return appendValue(b, item) })
			}
			return b
		})
	}
	return AppendVarint(b, valueNull, 0)
}
