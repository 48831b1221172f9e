package descriptors

import (
	"fmt"
	"strings"
)

// Entry is one key and value of a descriptor (envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry). Values
// come from clients: they can have any length and hold any bytes.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// HoldReserve and HoldSettle are the keys of a last entry that asks for a hold. Its value is the id of the hold.
const (
	HoldReserve = "hold.reserve"
	HoldSettle  = "hold.settle"
)

// OfHold reports whether the key is HoldReserve or HoldSettle.
func OfHold(key string) bool { return key == HoldReserve || key == HoldSettle }

// Descriptor is a list of entries, in the order in which the rule tree is walked.
type Descriptor struct {
	Entries []Entry
	// Limit replaces the limit of the matching rule; nil if the request brings none.
	Limit *RequestLimit
	// Hits is the cost of this descriptor; nil means the hits of the request.
	Hits *uint64
	// Negative gives the hits back instead of charging them (is_negative_hits).
	Negative bool
}

// RequestLimit is a limit that the request brings (RateLimitDescriptor.RateLimitOverride).
type RequestLimit struct {
	RequestsPerUnit uint32
	Unit            Unit
	// UnitMultiplier is the number of units in the window; 0 means 1.
	UnitMultiplier uint32
}

// Unit is a unit of time. The numbers are those of envoy.type.v3 RateLimitResponse.RateLimit.Unit.
type Unit uint8

// The units, as fixed lengths of time without a calendar: a month has 30 days, a year 365.
const (
	UnknownUnit Unit = iota
	Second
	Minute
	Hour
	Day
	Month
	Year
	Week
)

// Units lists the units a limit can have, shortest first.
var Units = []Unit{Second, Minute, Hour, Day, Week, Month, Year}

var unitSeconds = [...]int64{
	Second: 1, Minute: 60, Hour: 3600, Day: 86400, Month: 30 * 86400, Year: 365 * 86400, Week: 7 * 86400,
}
var unitNames = [...]string{"unknown", "second", "minute", "hour", "day", "month", "year", "week"}

// Micros returns the length of the unit in µs, 0 for an unknown unit.
func (u Unit) Micros() int64 {
	if int(u) >= len(unitSeconds) {
		return 0
	}
	return unitSeconds[u] * 1_000_000
}

// String returns the name used in rule files.
func (u Unit) String() string {
	if int(u) >= len(unitNames) {
		return unitNames[UnknownUnit]
	}
	return unitNames[u]
}

// Words lists the texts that UnmarshalText accepts.
func (Unit) Words() []string {
	words := make([]string, len(Units))
	for i, u := range Units {
		words[i] = u.String()
	}
	return words
}

// MarshalText returns the name.
func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// ErrUnit is the error of Unit.UnmarshalText.
var ErrUnit = fmt.Errorf("unknown unit: want one of %s", strings.Join(Unit(0).Words(), ", "))

// UnmarshalText accepts the name of a unit in any case.
func (u *Unit) UnmarshalText(text []byte) error {
	for _, unit := range Units {
		if strings.EqualFold(string(text), unit.String()) {
			*u = unit
			return nil
		}
	}
	return ErrUnit
}
