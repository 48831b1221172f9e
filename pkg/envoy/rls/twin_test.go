package rls_test

import (
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// twinFile has a message as RateLimitRequest, but its texts are bytes. So the library also reads texts that are not
// UTF-8. The unit is an int32, which is the same on the wire.
const twinFile = `
name: "twin.proto" syntax: "proto3"
message_type {
  name: "Request"
  field {name: "domain" number: 1 type: TYPE_BYTES}
  field {name: "descriptors" number: 2 type: TYPE_MESSAGE type_name: ".Descriptor" label: LABEL_REPEATED}
  field {name: "hits_addend" number: 3 type: TYPE_UINT32}
}
message_type {
  name: "Descriptor"
  field {name: "entries" number: 1 type: TYPE_MESSAGE type_name: ".Entry" label: LABEL_REPEATED}
  field {name: "limit" number: 2 type: TYPE_MESSAGE type_name: ".Override"}
  field {name: "hits_addend" number: 3 type: TYPE_MESSAGE type_name: ".UInt64"}
  field {name: "is_negative_hits" number: 4 type: TYPE_BOOL}
}
message_type {
  name: "Entry"
  field {name: "key" number: 1 type: TYPE_BYTES}
  field {name: "value" number: 2 type: TYPE_BYTES}
}
message_type {
  name: "Override"
  field {name: "requests_per_unit" number: 1 type: TYPE_UINT32}
  field {name: "unit" number: 2 type: TYPE_INT32}
  field {name: "unit_multiplier" number: 3 type: TYPE_MESSAGE type_name: ".UInt32"}
}
message_type { name: "UInt64" field {name: "value" number: 1 type: TYPE_UINT64} }
message_type { name: "UInt32" field {name: "value" number: 1 type: TYPE_UINT32} }
`

// newTwin returns a function that reads a RateLimitRequest as the library does, but also with texts that are not UTF-8.
func newTwin(t testing.TB) func(message []byte) (*ratelimitv3.RateLimitRequest, error) {
	t.Helper()
	parsed := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(twinFile), parsed); err != nil {
		t.Fatal(err)
	}
	file, err := protodesc.NewFile(parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	request := file.Messages().ByName("Request")
	return func(message []byte) (*ratelimitv3.RateLimitRequest, error) {
		twin, m := dynamicpb.NewMessage(request), new(ratelimitv3.RateLimitRequest)
		if err := proto.Unmarshal(message, twin); err != nil {
			return nil, err
		}
		copyFields(m.ProtoReflect(), twin)
		return m, nil
	}
}

// copyFields copies the fields of a twin.
func copyFields(to, from protoreflect.Message) {
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		field := to.Descriptor().Fields().ByNumber(f.Number())
		switch {
		case f.IsList():
			for i := range v.List().Len() {
				copyFields(to.Mutable(field).List().AppendMutable().Message(), v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			copyFields(to.Mutable(field).Message(), v.Message())
		case f.Kind() == protoreflect.BytesKind:
			to.Set(field, protoreflect.ValueOfString(string(v.Bytes())))
		case f.Kind() == protoreflect.Int32Kind:
			to.Set(field, protoreflect.ValueOfEnum(protoreflect.EnumNumber(v.Int())))
		default:
			to.Set(field, v)
		}
		return true
	})
}
