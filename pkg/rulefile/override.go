package rulefile

import (
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// override is the most requests that a credential's own limit may allow in the place of this one, 0 when none may take it.
func (b builder) override(l limitKeys) int64 {
	allowed := l.override.or(false)
	switch {
	case allowed && !l.overrideMax.mentioned:
		b.fail(l.override.key, "`override: allowed` without `override_max`",
			"add `override_max: N`, the most requests in the window of this limit that the own limit of a credential may allow")
	case !allowed && l.overrideMax.mentioned && l.override.set == l.override.mentioned:
		b.fail(l.overrideMax.key, "`override_max` without `override: allowed`", "add that, so that credentials with a limit of their own have it here; or delete `override_max`")
	case l.overrideMax.value > bucket.MaxRequests:
		b.fail(l.overrideMax.at, fmt.Sprintf("%d requests cannot be counted exactly", l.overrideMax.value), fmt.Sprintf("want at most %d", bucket.MaxRequests))
	case allowed:
		return l.overrideMax.value
	}
	return 0
}

// maxQueueTime bounds max_delay: Envoy and its client hold a request open that long.
const maxQueueTime = time.Minute

// maxDelay is how long a request may be held, in µs: as many units of a leaky bucket as leak in that time. limit has its window
// and can be counted exactly. The time of a whole number of units is rounded up to 1 µs, so that it is the time of no fewer.
func (b builder) maxDelay(g given[time.Duration], limit ratelimit.Limit) int64 {
	wanted := g.value.Microseconds()
	switch {
	case g.value == 0:
		return 0
	case limit.Algorithm != bucket.LeakyBucket:
		b.fail(g.key, fmt.Sprintf("`max_delay` has no meaning for %s", limit.Algorithm), "only a `leaky_bucket` holds requests until it has drained: change the algorithm, or delete `max_delay`")
		return 0
	case limit.Requests == 0:
		b.fail(g.key, "`max_delay` beside `requests_per_unit: 0`", "nothing leaks, so no request is ever let go: delete `max_delay`")
		return 0
	case g.value > maxQueueTime:
		b.fail(g.at, "`max_delay` cannot be "+quoted(g.value.String()), "want at most `1m`: Envoy and the client wait all that time")
		return 0
	}
	units := wanted * limit.Requests / limit.Window // at most a minute times MaxRequests
	exact := unitTime(limit.Limit, units)
	switch {
	case units == 0:
		b.fail(g.at, fmt.Sprintf("`max_delay` is shorter than the %s in which one request leaks", inWords(unitTime(limit.Limit, 1))),
			"no request could be held: want at least "+quoted(inWords(unitTime(limit.Limit, 1)))+", or no `max_delay`")
		return 0
	case exact != wanted:
		b.warn(g.at, fmt.Sprintf("`max_delay` is rounded down to %s", inWords(exact)), fmt.Sprintf("that is the time in which %s", leaks(units)))
	}
	if limit.Burst <= units {
		b.warn(g.key, fmt.Sprintf("the burst of %d denies requests before they wait that long", limit.Burst),
			fmt.Sprintf("write `burst: %d` to hold as many as leak in %s", units+1, inWords(exact)))
	}
	return exact
}

// unitTime is the time in which so many units leak, in µs and rounded up.
func unitTime(l bucket.Limit, units int64) int64 {
	return (units*l.Window + l.Requests - 1) / l.Requests
}

func inWords(micros int64) string { return (time.Duration(micros) * time.Microsecond).String() }

func leaks(units int64) string {
	if units == 1 {
		return "1 request leaks"
	}
	return fmt.Sprintf("%d requests leak", units)
}
