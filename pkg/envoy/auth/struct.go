package auth

import (
	"math"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// maxDepth bounds how deep metadata may be nested: what is deeper is null. Some filters put there what a client sends.
const maxDepth = 32

// Fields of google.protobuf.Struct, Value and ListValue as they are tagged on the wire.
const (
	structFields = 1<<3 | wire.Bytes
	listValues   = 1<<3 | wire.Bytes

	valueNull   = 1<<3 | wire.Varint
	valueNumber = 2<<3 | wire.Fixed64
	valueString = 3<<3 | wire.Bytes
	valueBool   = 4<<3 | wire.Varint
	valueStruct = 5<<3 | wire.Bytes
	valueList   = 6<<3 | wire.Bytes
)

// unmarshalStruct reads a Struct into fields.
func unmarshalStruct(msg string, fields map[string]any, depth int) error {
	return wire.EachField(msg, func(f wire.Field) error {
		if f.Tag != structFields {
			return nil
		}
		var key string
		var value any
		err := wire.EachField(f.Text, func(f wire.Field) (err error) {
			switch f.Tag {
			case entryKey:
				key = f.Text
			case entryValue:
				value, err = unmarshalValue(f.Text, value, depth)
			}
			return err
		})
		fields[key] = value
		return err
	})
}

// unmarshalValue reads a Value. One message may set it several times: the last one holds, but structs and lists in a row are
// merged, as for the generated code.
func unmarshalValue(msg string, value any, depth int) (any, error) {
	err := wire.EachField(msg, func(f wire.Field) error {
		switch f.Tag {
		case valueNull:
			value = nil
		case valueNumber:
			value = math.Float64frombits(f.Number)
		case valueString:
			value = f.Text
		case valueBool:
			value = f.Number != 0
		case valueStruct:
			if depth == 0 {
				value = nil
				return nil
			}
			fields, ok := value.(map[string]any)
			if !ok {
				fields = make(map[string]any)
				value = fields
			}
			return unmarshalStruct(f.Text, fields, depth-1)
		case valueList:
			if depth == 0 {
				value = nil
				return nil
			}
			list, _ := value.([]any)
			list, err := unmarshalList(f.Text, list, depth-1)
			value = list
			return err
		}
		return nil
	})
	return value, err
}

func unmarshalList(msg string, list []any, depth int) ([]any, error) {
	if list == nil {
		list = []any{}
	}
	err := wire.EachField(msg, func(f wire.Field) error {
		if f.Tag != listValues {
			return nil
		}
		value, err := unmarshalValue(f.Text, nil, depth)
		list = append(list, value)
		return err
	})
	return list, err
}
