package rls

import (
	"fmt"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// The bounds of a request. Envoy sends one descriptor for each entry of a route's rate_limits, and one entry for each
// of its actions: a handful. Clients of Envoy choose the values of entries, but never their number.
const (
	maxDescriptors = 64
	maxEntries     = 16
)

var (
	errDescriptors = &wire.Error{
		Code: wire.InvalidArgument, Reason: fmt.Sprintf("a request has at most %d descriptors", maxDescriptors),
	}
	errEntries = &wire.Error{
		Code: wire.InvalidArgument, Reason: fmt.Sprintf("a descriptor has at most %d entries", maxEntries),
	}
)

// Fields of envoy.service.ratelimit.v3.RateLimitRequest and envoy.extensions.common.ratelimit.v3.RateLimitDescriptor,
// as tags on the wire: number and type. A field with another type is ignored, as by the generated code.
const (
	requestDomain        = 1<<3 | wire.Bytes
	requestDescriptors   = 2<<3 | wire.Bytes
	requestHitsAddend    = 3<<3 | wire.Varint
	descriptorEntries    = 1<<3 | wire.Bytes
	descriptorLimit      = 2<<3 | wire.Bytes
	descriptorHitsAddend = 3<<3 | wire.Bytes
	descriptorNegative   = 4<<3 | wire.Varint
	overrideRequests     = 1<<3 | wire.Varint
	overrideUnit         = 2<<3 | wire.Varint
	overrideMultiplier   = 3<<3 | wire.Bytes
	wrapperValue         = 1<<3 | wire.Varint
)

const (
	maxUint32      = 1<<32 - 1
	unitsOnTheWire = uint64(descriptors.Week)
)

// unmarshal reads a RateLimitRequest. It stops at the first exceeded bound, before it allocates more.
func unmarshal(msg string) (q ratelimit.Query, err error) {
	err = wire.EachField(msg, func(f wire.Field) error {
		switch f.Tag {
		case requestDomain:
			q.Domain = f.Text
		case requestDescriptors:
			if len(q.Descriptors) == maxDescriptors {
				return errDescriptors
			}
			d, err := unmarshalDescriptor(f.Text)
			if err != nil {
				return fmt.Errorf("descriptor %d: %w", len(q.Descriptors), err)
			}
			q.Descriptors = append(q.Descriptors, d)
		case requestHitsAddend:
			q.Hits = f.Number & maxUint32
		}
		return nil
	})
	return q, err
}

func unmarshalDescriptor(msg string) (d descriptors.Descriptor, err error) {
	err = wire.EachField(msg, func(f wire.Field) error {
		switch f.Tag {
		case descriptorEntries:
			if len(d.Entries) == maxEntries {
				return errEntries
			}
			key, value, err := wire.ReadEntry(f.Text)
			d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: value})
			return err
		case descriptorLimit:
			if d.Limit == nil {
				d.Limit = new(descriptors.RequestLimit)
			}
			return unmarshalRequestLimit(f.Text, d.Limit)
		case descriptorHitsAddend:
			if d.Hits == nil {
				d.Hits = new(uint64)
			}
			return unmarshalWrapper(f.Text, d.Hits)
		case descriptorNegative:
			d.Negative = f.Number != 0
		}
		return nil
	})
	return d, err
}

func unmarshalRequestLimit(msg string, o *descriptors.RequestLimit) error {
	return wire.EachField(msg, func(f wire.Field) error {
		switch f.Tag {
		case overrideRequests:
			o.RequestsPerUnit = uint32(f.Number)
		case overrideUnit:
			o.Unit = descriptors.UnknownUnit
			if f.Number <= unitsOnTheWire {
				o.Unit = descriptors.Unit(f.Number)
			}
		case overrideMultiplier:
			var multiplier uint64
			err := unmarshalWrapper(f.Text, &multiplier)
			o.UnitMultiplier = uint32(multiplier)
			return err
		}
		return nil
	})
}

// unmarshalWrapper reads a google.protobuf.UInt64Value or UInt32Value.
func unmarshalWrapper(msg string, v *uint64) error {
	return wire.EachField(msg, func(f wire.Field) error {
		if f.Tag == wrapperValue {
			*v = f.Number
		}
		return nil
	})
}
