// Package bucket decides whether a request fits a rate limit: five algorithms as pure functions of (limit, state, time,
// cost), in Go for the embedded store and, side by side, in Lua for Redis. Both give the same answers to the microsecond.
//
// All times are whole microseconds since 1970, all durations whole microseconds. Nothing is rounded in a way that lets one
// request too many through: fractions are compared exactly.
package bucket

import (
	"fmt"
	"math"
	"strings"
)

// Bounds within which everything that the Lua computes stays an exact integer below 2^53. The bound on the log keeps the state
// of a bucket, which Redis has to rewrite on each charge, within some 100 kB.
const (
	// MaxRequests bounds Requests and Burst: the largest requests_per_unit that a rule file of envoyproxy/ratelimit can hold.
	MaxRequests    = math.MaxUint32
	MaxLogRequests = 10_000
	// WarnLogRequests is where one decision of the log begins to cost a noticeable part of Redis' time.
	WarnLogRequests = 1_000
	// maxUnits is the most that a bucket of the window algorithms holds of one window: counted denials fill it to twice its
	// capacity.
	maxUnits = 2 * MaxRequests
	// maxFill bounds how long a full bucket, filled to twice its capacity by counted denials, takes to empty: with it a
	// time stays below 2^53 µs until the year 2100. It bounds windows as well.
	maxFill = 1<<53 - 4_102_444_800_000_000
)

// MaxWindow is the longest window that can be counted exactly, in µs (about 77 years).
const MaxWindow = maxFill / 2

// Limit is how much a bucket lets through. Its zero value is no limit: use one that Check accepts.
type Limit struct {
	// Requests is the number of units a window; 0 denies every cost.
	Requests int64
	// Window is the length of the window in µs.
	Window int64
	// Burst is the capacity of the bucket algorithms; the window algorithms do not look at it.
	Burst int64
	// Algorithm is how the bucket counts.
	Algorithm Algorithm
}

// Capacity is the largest cost that can ever pass.
func (l Limit) Capacity() int64 {
	if l.Requests == 0 {
		return 0
	}
	if l.Algorithm.HasBurst() {
		return l.Burst
	}
	return l.Requests
}

// Check reports whether the limit can be counted exactly by every store; the error names the largest that can.
func (l Limit) Check() error {
	if !l.Algorithm.known() {
		return fmt.Errorf("no algorithm: want one of %s", strings.Join(l.Algorithm.Words(), ", "))
	}
	most := registry[l.Algorithm].most
	switch {
	case l.Requests < 0:
		return fmt.Errorf("%d requests: want 0 or more", l.Requests)
	case l.Requests > most:
		return fmt.Errorf("%d requests cannot be counted exactly by %s: at most %d", l.Requests, l.Algorithm, most)
	case l.Window < 1:
		return fmt.Errorf("a window of %d µs: want 1 or more", l.Window)
	case l.Window > MaxWindow:
		return fmt.Errorf("a window of %d days cannot be counted exactly: at most %d days", l.Window/86_400_000_000, int64(MaxWindow/86_400_000_000))
	}
	if !l.Algorithm.HasBurst() || l.Requests == 0 {
		return nil
	}
	// 2·Burst·Window/Requests ≤ maxFill. With a short window the bound may not fit 64 bits.
	burst := int64(MaxRequests)
	if less(product(maxFill/2, l.Requests), product(MaxRequests, l.Window)) {
		burst, _ = mulDiv(maxFill/2, l.Requests, l.Window)
	}
	switch {
	case l.Burst < 1:
		return fmt.Errorf("a burst of %d: want 1 or more", l.Burst)
	case l.Burst > burst:
		return fmt.Errorf("a burst of %d at this rate cannot be counted exactly: at most %d", l.Burst, burst)
	}
	return nil
}
