package envoyrls

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// request is a RateLimitRequest off the wire. It is read without the generated code, because that refuses text that is not
// UTF-8: a client of Envoy could send such a header, the call would fail, and Envoy would let the request pass.
type request struct{ query ratelimit.Query }

// Codec decodes requests of the rate limit service and leaves all else to gRPC's own protobuf codec. A server of Server must be
// made with it (grpc.ForceServerCodecV2).
type Codec struct{ encoding.CodecV2 }

// NewCodec returns a codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal reads data into v.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	// One copy of the message: all keys and values are parts of it.
	return r.unmarshal(string(buf.ReadOnlyData()))
}

// Fields of envoy.service.ratelimit.v3.RateLimitRequest and envoy.extensions.common.ratelimit.v3.RateLimitDescriptor as they
// are tagged on the wire, with number and type; one with another type is not the field, as for the generated code.
const (
	requestDomain        = 1<<3 | uint64(protowire.BytesType)
	requestDescriptors   = 2<<3 | uint64(protowire.BytesType)
	requestHitsAddend    = 3<<3 | uint64(protowire.VarintType)
	descriptorEntries    = 1<<3 | uint64(protowire.BytesType)
	descriptorLimit      = 2<<3 | uint64(protowire.BytesType)
	descriptorHitsAddend = 3<<3 | uint64(protowire.BytesType)
	descriptorNegative   = 4<<3 | uint64(protowire.VarintType)
	entryKey             = 1<<3 | uint64(protowire.BytesType)
	entryValue           = 2<<3 | uint64(protowire.BytesType)
	overrideRequests     = 1<<3 | uint64(protowire.VarintType)
	overrideUnit         = 2<<3 | uint64(protowire.VarintType)
	overrideMultiplier   = 3<<3 | uint64(protowire.BytesType)
	wrapperValue         = 1<<3 | uint64(protowire.VarintType)
)

const (
	maxUint32      = 1<<32 - 1
	unitsOnTheWire = uint64(descriptors.Week)
)

func (r *request) unmarshal(msg string) error {
	return eachField(msg, func(f field) error {
		switch f.tag {
		case requestDomain:
			r.query.Domain = f.text
		case requestDescriptors:
			d, err := unmarshalDescriptor(f.text)
			if err != nil {
				return fmt.Errorf("descriptor %d: %w", len(r.query.Descriptors), err)
			}
			r.query.Descriptors = append(r.query.Descriptors, d)
		case requestHitsAddend:
			r.query.Hits = f.varint & maxUint32
		}
		return nil
	})
}

func unmarshalDescriptor(msg string) (d descriptors.Descriptor, err error) {
	err = eachField(msg, func(f field) error {
		switch f.tag {
		case descriptorEntries:
			var e descriptors.Entry
			d.Entries = append(d.Entries, e)
			return unmarshalEntry(f.text, &d.Entries[len(d.Entries)-1])
		case descriptorLimit:
			if d.Limit == nil {
				d.Limit = new(descriptors.Override)
			}
			return unmarshalOverride(f.text, d.Limit)
		case descriptorHitsAddend:
			if d.Hits == nil {
				d.Hits = new(uint64)
			}
			return unmarshalWrapper(f.text, d.Hits)
		case descriptorNegative:
			d.Negative = f.varint != 0
		}
		return nil
	})
	return d, err
}

func unmarshalEntry(msg string, e *descriptors.Entry) error {
	return eachField(msg, func(f field) error {
		switch f.tag {
		case entryKey:
			e.Key = f.text
		case entryValue:
			e.Value = f.text
		}
		return nil
	})
}

func unmarshalOverride(msg string, o *descriptors.Override) error {
	return eachField(msg, func(f field) error {
		switch f.tag {
		case overrideRequests:
			o.RequestsPerUnit = uint32(f.varint)
		case overrideUnit:
			o.Unit = descriptors.UnknownUnit
			if f.varint <= unitsOnTheWire {
				o.Unit = descriptors.Unit(f.varint)
			}
		case overrideMultiplier:
			var multiplier uint64
			err := unmarshalWrapper(f.text, &multiplier)
			o.UnitMultiplier = uint32(multiplier)
			return err
		}
		return nil
	})
}

// unmarshalWrapper reads a google.protobuf.UInt64Value or UInt32Value.
func unmarshalWrapper(msg string, v *uint64) error {
	return eachField(msg, func(f field) error {
		if f.tag == wrapperValue {
			*v = f.varint
		}
		return nil
	})
}

// field is one field of a message: its text when it is length-delimited, its varint when it is one.
type field struct {
	tag    uint64
	text   string
	varint uint64
}

var errMalformed = errors.New("malformed protobuf message")

// eachField calls f for the fields of a message in order.
func eachField(msg string, f func(field) error) error {
	for len(msg) > 0 {
		tag, n := consumeVarint(msg)
		number, kind := protowire.DecodeTag(tag)
		if n < 0 || number < protowire.MinValidNumber {
			return errMalformed
		}
		msg = msg[n:]
		v := field{tag: tag}
		switch kind {
		case protowire.VarintType:
			v.varint, n = consumeVarint(msg)
		case protowire.BytesType:
			v.text, n = consumeText(msg)
		default:
			n = protowire.ConsumeFieldValue(number, kind, []byte(msg))
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

// The following are protowire's functions for strings, so that a message is copied once and not once a field.

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

func consumeText(s string) (string, int) {
	size, n := consumeVarint(s)
	if n < 0 || size > uint64(len(s)-n) {
		return "", -1
	}
	return s[n : n+int(size)], n + int(size)
}

// fromProto reads a request that came as JSON.
func fromProto(m *ratelimitv3.RateLimitRequest) ratelimit.Query {
	q := ratelimit.Query{Domain: m.GetDomain(), Hits: uint64(m.GetHitsAddend())}
	for _, d := range m.GetDescriptors() {
		one := descriptors.Descriptor{Negative: d.GetIsNegativeHits()}
		for _, e := range d.GetEntries() {
			one.Entries = append(one.Entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if hits := d.GetHitsAddend(); hits != nil {
			one.Hits = &hits.Value
		}
		if l := d.GetLimit(); l != nil {
			one.Limit = &descriptors.Override{
				RequestsPerUnit: l.GetRequestsPerUnit(), UnitMultiplier: l.GetUnitMultiplier().GetValue(),
			}
			if unit := uint64(l.GetUnit()); unit <= unitsOnTheWire {
				one.Limit.Unit = descriptors.Unit(unit)
			}
		}
		q.Descriptors = append(q.Descriptors, one)
	}
	return q
}
