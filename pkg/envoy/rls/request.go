package rls

import (
	"fmt"
	"math"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/wire"
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
	requestDomain             = 1<<3 | wire.Bytes
	requestDescriptors        = 2<<3 | wire.Bytes
	requestHitsAddend         = 3<<3 | wire.Varint
	descriptorEntries         = 1<<3 | wire.Bytes
	descriptorLimit           = 2<<3 | wire.Bytes
	descriptorHitsAddend      = 3<<3 | wire.Bytes
	descriptorNegative        = 4<<3 | wire.Varint
	descriptorLimitRequests   = 1<<3 | wire.Varint
	descriptorLimitUnit       = 2<<3 | wire.Varint
	descriptorLimitMultiplier = 3<<3 | wire.Bytes
	wrapperValue              = 1<<3 | wire.Varint
)

// Memory is memory for the parts of queries, so that reading a request allocates nothing. A query has slices of it and
// pointers into it, which end with Reset. When it grows, those of earlier queries keep the memory from before.
type Memory struct {
	descriptors []descriptors.Descriptor
	entries     []descriptors.Entry
	limits      []descriptors.RequestLimit
	hits        []uint64
}

// Large reports whether there is more memory than a pool should keep.
func (m *Memory) Large() bool {
	const most = 4 << 10
	return cap(m.entries) > most || cap(m.descriptors) > most
}

// Reset ends all queries. It also drops their texts, which are those of the messages.
func (m *Memory) Reset() {
	clear(m.descriptors)
	clear(m.entries)
	m.descriptors, m.entries, m.limits, m.hits = m.descriptors[:0], m.entries[:0], m.limits[:0], m.hits[:0]
}

// Unmarshal reads a RateLimitRequest into an empty query, whose texts are parts of the message. It stops at the first
// exceeded bound, before it takes more memory. A *wire.Error reports a bound, and any other error a malformed message.
func (m *Memory) Unmarshal(msg string, q *ratelimit.Query) error {
	first := len(m.descriptors)
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case requestDomain:
			q.Domain = r.Text
		case requestDescriptors:
			n := len(m.descriptors) - first
			if n == maxDescriptors {
				return errDescriptors
			}
			m.descriptors = append(m.descriptors, descriptors.Descriptor{})
			if err := m.descriptor(r.Text, &m.descriptors[first+n]); err != nil {
				return fmt.Errorf("descriptor %d: %w", n, err)
			}
		case requestHitsAddend:
			q.Hits = r.Number & math.MaxUint32
		}
	}
	q.Descriptors = m.descriptors[first:len(m.descriptors):len(m.descriptors)]
	return r.Err()
}

// descriptor reads a RateLimitDescriptor.
func (m *Memory) descriptor(msg string, d *descriptors.Descriptor) error {
	first := len(m.entries)
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case descriptorEntries:
			if len(m.entries)-first == maxEntries {
				return errEntries
			}
			key, value, err := wire.ReadEntry(r.Text)
			if err != nil {
				return err
			}
			m.entries = append(m.entries, descriptors.Entry{Key: key, Value: value})
		case descriptorLimit:
			if d.Limit == nil {
				m.limits = append(m.limits, descriptors.RequestLimit{})
				d.Limit = &m.limits[len(m.limits)-1]
			}
			if err := unmarshalRequestLimit(r.Text, d.Limit); err != nil {
				return err
			}
		case descriptorHitsAddend:
			if d.Hits == nil {
				m.hits = append(m.hits, 0)
				d.Hits = &m.hits[len(m.hits)-1]
			}
			if err := unmarshalWrapper(r.Text, d.Hits); err != nil {
				return err
			}
		case descriptorNegative:
			d.Negative = r.Number != 0
		}
	}
	d.Entries = m.entries[first:len(m.entries):len(m.entries)]
	return r.Err()
}

func unmarshalRequestLimit(msg string, o *descriptors.RequestLimit) error {
	r := wire.Read(msg)
	for r.Next() {
		switch r.Tag {
		case descriptorLimitRequests:
			o.RequestsPerUnit = uint32(r.Number)
		case descriptorLimitUnit:
			o.Unit = descriptors.UnknownUnit
			if unit := uint32(r.Number); unit <= uint32(descriptors.Week) {
				o.Unit = descriptors.Unit(unit)
			}
		case descriptorLimitMultiplier:
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
