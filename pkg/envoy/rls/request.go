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
	unitsOnTheWire = uint32(descriptors.Week)
)

// parts is memory for the parts of queries, so that reading a request allocates nothing. A query has slices of it and
// pointers into it, which end with reset. When it grows, those of earlier queries keep the memory from before.
type parts struct {
	descriptors []descriptors.Descriptor
	entries     []descriptors.Entry
	limits      []descriptors.RequestLimit
	hits        []uint64
}

// large reports whether there is more memory than should be kept for the next batch.
func (p *parts) large() bool {
	const most = 4 << 10
	return cap(p.entries) > most || cap(p.descriptors) > most
}

// reset ends all queries. It also drops their texts, which are those of the messages.
func (p *parts) reset() {
	clear(p.descriptors)
	clear(p.entries)
	p.descriptors, p.entries, p.limits, p.hits = p.descriptors[:0], p.entries[:0], p.limits[:0], p.hits[:0]
}

// unmarshal reads a RateLimitRequest into an empty query, whose texts are parts of the message. It stops at the first
// exceeded bound, before it takes more memory.
func (p *parts) unmarshal(msg string, q *ratelimit.Query) error {
	first := len(p.descriptors)
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case requestDomain:
			q.Domain = r.Text
		case requestDescriptors:
			n := len(p.descriptors) - first
			if n == maxDescriptors {
				return errDescriptors
			}
			p.descriptors = append(p.descriptors, descriptors.Descriptor{})
			if err := p.descriptor(r.Text, &p.descriptors[first+n]); err != nil {
				return fmt.Errorf("descriptor %d: %w", n, err)
			}
		case requestHitsAddend:
			q.Hits = r.Number & maxUint32
		}
	}
	q.Descriptors = p.descriptors[first:len(p.descriptors):len(p.descriptors)]
	return r.Err()
}

// descriptor reads a RateLimitDescriptor.
func (p *parts) descriptor(msg string, d *descriptors.Descriptor) error {
	first := len(p.entries)
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case descriptorEntries:
			if len(p.entries)-first == maxEntries {
				return errEntries
			}
			key, value, err := wire.ReadEntry(r.Text)
			if err != nil {
				return err
			}
			p.entries = append(p.entries, descriptors.Entry{Key: key, Value: value})
		case descriptorLimit:
			if d.Limit == nil {
				p.limits = append(p.limits, descriptors.RequestLimit{})
				d.Limit = &p.limits[len(p.limits)-1]
			}
			if err := unmarshalRequestLimit(r.Text, d.Limit); err != nil {
				return err
			}
		case descriptorHitsAddend:
			if d.Hits == nil {
				p.hits = append(p.hits, 0)
				d.Hits = &p.hits[len(p.hits)-1]
			}
			if err := unmarshalWrapper(r.Text, d.Hits); err != nil {
				return err
			}
		case descriptorNegative:
			d.Negative = r.Number != 0
		}
	}
	d.Entries = p.entries[first:len(p.entries):len(p.entries)]
	return r.Err()
}

func unmarshalRequestLimit(msg string, o *descriptors.RequestLimit) error {
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case overrideRequests:
			o.RequestsPerUnit = uint32(r.Number)
		case overrideUnit:
			o.Unit = descriptors.UnknownUnit
			if unit := uint32(r.Number); unit <= unitsOnTheWire {
				o.Unit = descriptors.Unit(unit)
			}
		case overrideMultiplier:
			multiplier := uint64(o.UnitMultiplier) // a second message is merged, as by the generated code
			err := unmarshalWrapper(r.Text, &multiplier)
			o.UnitMultiplier = uint32(multiplier)
			if err != nil {
				return err
			}
		}
	}
	return r.Err()
}

// unmarshalWrapper reads a google.protobuf.UInt64Value or UInt32Value.
func unmarshalWrapper(msg string, v *uint64) error {
	r := wire.Read(msg)
	for r.Next() {
		if r.Tag == wrapperValue {
			*v = r.Number
		}
	}
	return r.Err()
}
