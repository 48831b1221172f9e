package ratelimit_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestLimitSpec checks the limit that a store decides by, and the field of each error.
func TestLimitSpec(t *testing.T) {
	const minute = 60_000_000
	type spec = ratelimit.LimitSpec
	for name, c := range map[string]struct {
		spec spec
		want bucket.Limit
	}{
		"a small sliding window": {spec{Requests: 20, Unit: descriptors.Minute, Algorithm: bucket.SlidingWindow},
			bucket.Limit{Requests: 20, Window: minute, Algorithm: bucket.SlidingWindowLog}},
		"a large one": {spec{Requests: 21, Unit: descriptors.Minute, Algorithm: bucket.SlidingWindow},
			bucket.Limit{Requests: 21, Window: minute, Algorithm: bucket.SlidingWindowCounter}},
		"several units": {spec{Requests: 1, Unit: descriptors.Second, Multiplier: 90, Algorithm: bucket.FixedWindow},
			bucket.Limit{Requests: 1, Window: 90_000_000, Algorithm: bucket.FixedWindow}},
		"no burst": {spec{Requests: 5, Unit: descriptors.Minute, Algorithm: bucket.TokenBucket},
			bucket.Limit{Requests: 5, Window: minute, Burst: 5, Algorithm: bucket.TokenBucket}},
		"a burst": {spec{Requests: 5, Unit: descriptors.Minute, Burst: 9, Algorithm: bucket.LeakyBucket},
			bucket.Limit{Requests: 5, Window: minute, Burst: 9, Algorithm: bucket.LeakyBucket}},
	} {
		if got, err := c.spec.Bucket(); err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		spec  spec
		field string
		want  string
	}{
		"no unit":         {spec{Requests: 1, Algorithm: bucket.FixedWindow}, "unit", "want second, minute"},
		"an unknown unit": {spec{Requests: 1, Unit: 99, Algorithm: bucket.FixedWindow}, "unit", "want second, minute"},
		"too many units": {spec{Requests: 1, Unit: descriptors.Year, Multiplier: 78, Algorithm: bucket.FixedWindow},
			"unit_multiplier", "at most 77"},
		"countless units": {
			spec{Requests: 1, Unit: descriptors.Second, Multiplier: 1<<64 - 1, Algorithm: bucket.FixedWindow},
			"unit_multiplier", "at most",
		},
		"too many requests": {spec{Requests: 10_001, Unit: descriptors.Day, Algorithm: bucket.SlidingWindowLog},
			"requests_per_unit", "at most 10000"},
		"no algorithm": {spec{Requests: 1, Unit: descriptors.Day}, "algorithm", "no algorithm"},
		"a burst of a window": {spec{Requests: 1, Unit: descriptors.Day, Burst: 2, Algorithm: bucket.SlidingWindow},
			"burst", "no meaning for sliding_window"},
		"a burst too large": {spec{Requests: 1, Unit: descriptors.Year, Burst: 78, Algorithm: bucket.TokenBucket},
			"burst", "at most 77"},
		"requests as a burst too large": {spec{Requests: 1 << 32, Unit: descriptors.Year, Algorithm: bucket.TokenBucket},
			"requests_per_unit", "at most 4294967295"},
	} {
		if _, err := c.spec.Bucket(); err == nil || err.Field != c.field || !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: got %+v, want field %s and %q", name, err, c.field, c.want)
		}
	}
}
