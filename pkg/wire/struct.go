package wire

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxDepth bounds the nesting of a Struct, because clients can choose it: a deeper value is read as null.
const MaxDepth = 32

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

// ReadStruct reads a google.protobuf.Struct into fields.
func ReadStruct(msg string, fields map[string]any) error {
	return unmarshalStruct(msg, fields, MaxDepth)
}

func unmarshalStruct(msg string, fields map[string]any, depth int) error {
	r := Read(msg)
	for r.Next() {
		if r.Tag != structFields {
			continue
		}
		key, value, err := unmarshalField(r.Text, depth)
		if fields[key] = value; err != nil {
			return err
		}
	}
	return r.Err()
}

func unmarshalField(msg string, depth int) (key string, value any, err error) {
	r := Read(msg)
	for r.Next() {
		switch r.Tag {
		case fieldKey:
			key = r.Text
		case fieldValue:
			if value, err = unmarshalValue(r.Text, value, depth); err != nil {
				return key, value, err
			}
		}
	}
	return key, value, r.Err()
}

// unmarshalValue reads a Value. One message may set it several times. The last value holds, but consecutive structs
// and lists are merged, as by the generated code.
func unmarshalValue(msg string, value any, depth int) (any, error) {
	r := Read(msg)
	for r.Next() {
		if depth == 0 && (r.Tag == valueStruct || r.Tag == valueList) {
			r.Tag = valueNull
		}
		var err error
		switch r.Tag {
		case valueNull:
			value = nil
		case valueNumber:
			value = math.Float64frombits(r.Number)
		case valueString:
			value = r.Text
		case valueBool:
			value = r.Number != 0
		case valueStruct:
			fields, ok := value.(map[string]any)
			if !ok {
				fields = make(map[string]any)
				value = fields
			}
			err = unmarshalStruct(r.Text, fields, depth-1)
		case valueList:
			list, _ := value.([]any)
			list, err = unmarshalList(r.Text, list, depth-1)
			value = list
		}
		if err != nil {
			return value, err
		}
	}
	return value, r.Err()
}

func unmarshalList(msg string, list []any, depth int) ([]any, error) {
	if list == nil {
		list = []any{}
	}
	r := Read(msg)
	for r.Next() {
		if r.Tag != listValues {
			continue
		}
		value, err := unmarshalValue(r.Text, nil, depth)
		if list = append(list, value); err != nil {
			return list, err
		}
	}
	return list, r.Err()
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
