package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Message is a request that reads itself.
type Message interface {
	// UnmarshalWire reads a protobuf message. What the message holds of text may be parts of msg.
	UnmarshalWire(msg string) error
}

// Codec lets a Message read and an Answer write itself, and leaves all else to gRPC's own protobuf codec. The server of a service
// that has any must be made with it (grpc.ForceServerCodecV2).
type Codec struct {
	encoding.CodecV2
	panicked func(where string, value any)
}

// NewCodec returns a codec. A panic while a message is read or written becomes an error, since no interceptor of gRPC would
// recover it; panicked gets the message's type and the panic, within the deferred function that recovered it.
func NewCodec(panicked func(where string, value any)) Codec {
	return Codec{encoding.GetCodecV2(grpcproto.Name), panicked}
}

var errPanicked = errors.New("internal error")

// Unmarshal reads data into v.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(fmt.Sprintf("read %T", v), p)
			err = errPanicked
		}
	}()
	m, ok := v.(Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	// One copy of the message: all its text are parts of it.
	return m.UnmarshalWire(string(buf.ReadOnlyData()))
}

// usualAnswer is more than most answers need.
const usualAnswer = 1 << 10

// Marshal writes v.
func (c Codec) Marshal(v any) (data mem.BufferSlice, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(fmt.Sprintf("write %T", v), p)
			data, err = nil, errPanicked
		}
	}()
	a, ok := v.(Answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(a.AppendWire(make([]byte, 0, usualAnswer)))}, nil
}
