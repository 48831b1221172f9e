package bucket

import (
	"fmt"
	"math"
	"strings"
)

// These bounds keep every number in the Lua an exact integer below 2^53. Redis rewrites the state of a bucket on each
// charge; the bound on the log keeps that state within some 100 kB.
const (
	// MaxRequests bounds Requests and Burst. It is the largest requests_per_unit in a rule file of envoyproxy/ratelimit.
	MaxRequests = math.MaxUint32
	// MaxWindowRequests bounds the Requests of a fixed window. Five times as much is below 2^53, and it is the largest
	// integer of a structured field (RFC 9651).
	MaxWindowRequests = 999_999_999_999_999
	MaxLogRequests    = 10_000
	// WarnLogRequests is the limit from which one decision of the log costs a noticeable part of Redis' time.
	WarnLogRequests = 1_000
	// maxUnits is the most units of one window in a bucket: counted denials fill it to twice its capacity. A fixed window
	// has twice MaxWindowRequests.
	maxUnits = 2 * MaxRequests
	// maxFill bounds the time in which a full bucket empties, also one that counted denials filled to twice its capacity.
	// With it, times stay below 2^53 µs until the year 2100. It also bounds windows.
	maxFill = 1<<53 - 4_102_444_800_000_000
)

// MaxWindow is the longest window that can be counted exactly, in µs (about 77 years).
const MaxWindow = maxFill / 2

// Limit is how much a bucket lets through. Its zero value is not valid: Check must accept the limit.
type Limit struct {
	// Requests is the number of units in a window; 0 denies every cost above 0.
	Requests int64
	// Window is the length of the window in µs. With a Calendar it is only near that: see WindowAt.
	Window int64
	// Burst is the capacity of the bucket algorithms. The window algorithms ignore it.
	Burst int64
	// Algorithm is how the bucket counts.
	Algorithm Algorithm
	// Calendar has the windows of CalendarWindow. It is nil for all other algorithms.
	Calendar *Calendar
}

// WindowAt returns the beginning and the end of the window that contains a time, both in µs since 1970.
func (l *Limit) WindowAt(x int64) (begin, end int64) {
	if l.Calendar != nil {
		return l.Calendar.Window(x)
	}
	begin = x - x%l.Window
	return begin, begin + l.Window
}

// Length returns the length of the window that contains a time, in µs.
func (l *Limit) Length(at int64) int64 {
	if l.Calendar == nil {
		return l.Window
	}
	begin, end := l.Calendar.Window(at)
	return end - begin
}

// Capacity returns the largest cost that can ever pass.
func (l Limit) Capacity() int64 {
	if l.Requests == 0 {
		return 0
	}
	if l.Algorithm.HasBurst() {
		return l.Burst
	}
	return l.Requests
}

// Check returns an error if a store cannot count the limit exactly. The error names the largest value that works.
func (l Limit) Check() error {
	if !l.Algorithm.known() {
		return fmt.Errorf("no algorithm: want one of %s", strings.Join(l.Algorithm.Words(), ", "))
	}
	most := registry[l.Algorithm].most
	switch {
	case (l.Calendar != nil) != registry[l.Algorithm].calendar:
		return fmt.Errorf("the algorithm %d with the calendar %q: want one for calendar windows, and only for them",
			l.Algorithm, l.Calendar.Zone())
	case l.Requests < 0:
		return fmt.Errorf("%d requests: want 0 or more", l.Requests)
	case l.Requests > most:
		return fmt.Errorf("%d requests cannot be counted exactly by %s: at most %d", l.Requests, l.Algorithm, most)
	case registry[l.Algorithm].windowless:
		if l.Window != 0 {
			return fmt.Errorf("a window of %d µs for %s: want 0", l.Window, l.Algorithm)
		}
		return nil
	case l.Window < 1:
		return fmt.Errorf("a window of %d µs: want 1 or more", l.Window)
	case l.Window > MaxWindow:
		return fmt.Errorf("a window of %d days cannot be counted exactly: at most %d days",
			l.Window/86_400_000_000, int64(MaxWindow/86_400_000_000))
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
