package ratelimit

import (
	"fmt"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// lease returns how many units of a bucket a replica may charge in advance: Limit.Lease, or 0 if the limit cannot be
// counted exactly with it. Check reports such a limit.
func (l *Limit) lease(counted bucket.Limit, maxDelay int64) uint64 {
	if l.Lease < 1 || l.Lease > counted.Capacity() || counted.Algorithm.HasGrants() || maxDelay > 0 {
		return 0
	}
	return uint64(l.Lease)
}

// checkLease reports a lease that makes a limit inexact or never fits. The limit passes bucket.Limit.Check.
func (c *checker) checkLease(l *Limit, limit bucket.Limit, at string) {
	also := append(specPaths(at), at+".max_delay")
	onValue, onKey := c.At(at+".lease", also...), c.Key(at+".lease", also...)
	c.checkAtLeast(l.Lease, 1, at+".lease")
	capacity := limit.Capacity()
	switch {
	case l.Lease < 1:
	case limit.Requests == 0:
		onKey.Fail("`lease` beside `requests_per_unit: 0`", "no request passes: delete `lease`")
	case limit.Algorithm.HasGrants():
		onKey.Fail(fmt.Sprintf("`lease` has no meaning for %s", limit.Algorithm),
			"its hits leave the window some time after they were charged, not after their use: "+
				"write `algorithm: sliding_window_counter` or `fixed_window`, or delete `lease`")
	case l.MaxDelay != 0:
		onKey.Fail("`lease` beside `max_delay`", "each held request needs its own turn in Redis: delete one of them")
	case l.Lease > capacity:
		onValue.Fail(fmt.Sprintf("`lease` is more than the limit of %d", capacity),
			"it would never fit: want at most a tenth of the limit")
	case c.strict:
		onKey.Warn("`lease` has no effect with COMPATIBILITY=strict",
			"each hit is charged to Redis, as at envoyproxy/ratelimit")
	case l.Lease > capacity/worthwhile:
		onValue.Warn(fmt.Sprintf("a lease of %d is a large part of the limit of %d", l.Lease, capacity),
			"what a replica does not use of it stays charged, also if the replica dies: want at most a tenth of the limit")
	}
}

// worthwhile is the share of a limit from which a lease is reported as large.
const worthwhile = 10
