package ratelimit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// LimitSpec is a limit as people write it: in a rule file, in a request of Envoy, or with a credential. It is
// comparable, so it can be the key of a map.
type LimitSpec struct {
	// Requests is how many units pass in a window; 0 denies every cost above 0.
	Requests int64 `json:"requests_per_unit"`
	// Unit and Multiplier make up the window. A Multiplier of 0 means 1. A Multiplier that Bucket accepts fits 32 bits,
	// because the longest window has fewer seconds.
	Unit       descriptors.Unit `json:"unit"`
	Multiplier uint64           `json:"unit_multiplier,omitempty"`
	// Algorithm may be bucket.SlidingWindow, which depends on Requests. With a Calendar, its default is
	// bucket.FixedWindow; else it has none.
	Algorithm bucket.Algorithm `json:"algorithm,omitempty"`
	// Calendar is the time zone by which days, weeks, months or years begin; "" for windows of equal length.
	Calendar string `json:"calendar,omitempty"`
	// Burst is the capacity of the bucket algorithms; 0 means Requests. The window algorithms have none.
	Burst int64 `json:"burst,omitempty"`
}

// SpecError is the reason why a LimitSpec cannot be counted.
type SpecError struct {
	// Field is the wrong part, as a YAML key.
	Field string
	// Message names the value and the largest one that can be counted.
	Message string
}

func (e *SpecError) Error() string { return e.Message }

// ofRule is Bucket for a limit of a rule, which can also be one of concurrency.
func (s LimitSpec) ofRule() (bucket.Limit, *SpecError) {
	if !s.Algorithm.Windowless() {
		return s.Bucket()
	}
	l := bucket.Limit{Algorithm: s.Algorithm, Requests: s.Requests}
	if err := l.Check(); err != nil {
		return l, &SpecError{"requests_per_unit", err.Error()}
	}
	return l, nil
}

// Bucket returns the limit that stores decide by, or an error that is not nil.
func (s LimitSpec) Bucket() (bucket.Limit, *SpecError) {
	if s.Calendar != "" {
		s.Algorithm = cmp.Or(s.Algorithm, bucket.FixedWindow)
	}
	unit, multiplier := s.Unit.Micros(), max(1, s.Multiplier)
	l := bucket.Limit{Algorithm: s.Algorithm.For(s.Requests), Requests: s.Requests, Burst: s.Burst}
	fail := func(field, format string, args ...any) (bucket.Limit, *SpecError) {
		return l, &SpecError{field, fmt.Sprintf(format, args...)}
	}
	switch most := uint64(bucket.MaxWindow / max(1, unit)); {
	case s.Algorithm.Windowless():
		return fail("algorithm", "%s needs `hold`, which only a limit of a rule can have", s.Algorithm)
	case !slices.Contains(bucket.Algorithms, l.Algorithm):
		return fail("algorithm", "%v", l.Check())
	case s.Burst != 0 && !s.Algorithm.HasBurst():
		return fail("burst", "`burst` has no meaning for %s", s.Algorithm)
	case unit == 0:
		return fail("unit", "unit %d is unknown: want second, minute, hour, day, week, month or year", s.Unit)
	case multiplier > most:
		return fail("unit_multiplier", "a window of %d %ss cannot be counted exactly: at most %d", multiplier, s.Unit, most)
	}
	l.Window = unit * int64(multiplier)
	switch {
	case s.Calendar == "":
	case !slices.Contains(bucket.CalendarUnits, s.Unit.String()), multiplier > 1:
		return fail("calendar", "`calendar` has no meaning for %s", suggest.Counted(int(multiplier), s.Unit.String()))
	case s.Algorithm != bucket.FixedWindow:
		return fail("calendar", "`calendar` has no meaning for %s", s.Algorithm)
	default:
		var err error
		if l.Calendar, err = bucket.CalendarNamed(s.Unit.String() + "@" + s.Calendar); err != nil {
			return fail("calendar", "unknown time zone %s", suggest.Quoted(s.Calendar))
		}
		l.Algorithm = bucket.CalendarWindow
	}
	if l.Burst == 0 && l.Algorithm.HasBurst() {
		l.Burst = l.Requests
	}
	err := l.Check()
	if err == nil {
		return l, nil
	}
	rate := l
	rate.Burst = 1
	if s.Burst != 0 && rate.Check() == nil {
		return fail("burst", "%v", err)
	}
	return fail("requests_per_unit", "%v", err)
}
