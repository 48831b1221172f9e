package replay

import (
	"math"
	"strconv"
	"time"

	"github.com/extauthz/extauthz/tools/migrate"
)

// tank is what is known of the tokens of one bucket on one side. It is a range, because a decision was made at an
// unknown moment between sending and receiving.
type tank struct {
	route  *migrate.SpringRoute
	refill refill
	// low and high bound the tokens that were left by the last decision.
	low, high float64
	last      *httpAnswer // nil before the first
	broken    bool        // a decision was not one of this bucket
}

// refill is how tokens come back.
type refill bool

const (
	// eachSecond adds tokens at each full second, as Spring's script does. Versions after 5.0 may add them continuously;
	// the range of a tank has both.
	eachSecond refill = true
	// continuously adds a part of a token in a part of the time.
	continuously refill = false
)

// newTank returns a full tank.
func newTank(route *migrate.SpringRoute, r refill) tank {
	return tank{route: route, refill: r, low: float64(route.Burst), high: float64(route.Burst)}
}

// decide notes an answer. It reports whether all answers so far are those of a bucket that began full.
func (t *tank) decide(a *httpAnswer, denied bool) bool {
	if t.last != nil {
		t.fill(max(0, a.sent.Sub(t.last.received)), a.received.Sub(t.last.sent))
	}
	t.last = a
	const rounding = 1e-6
	cost := float64(t.route.Tokens)
	if denied {
		t.high = min(t.high, cost-2*rounding)
	} else {
		t.low, t.high = max(t.low-cost, 0), t.high-cost
	}
	if text := a.limit[remaining]; text != "" { // in whole tokens, rounded down
		left, err := strconv.ParseInt(text, 10, 64)
		t.low, t.high = max(t.low, float64(left)), min(t.high, float64(left)+1)
		t.broken = t.broken || err != nil
	}
	t.broken = t.broken || t.low > t.high+rounding || a.refused()
	return !t.broken
}

// fill adds the tokens that have come back in a time between least and most.
func (t *tank) fill(least, most time.Duration) {
	from, to := least.Seconds(), most.Seconds()
	if t.refill == eachSecond {
		from, to = math.Floor(from), math.Ceil(to)
	}
	rate, burst := float64(t.route.Rate), float64(t.route.Burst)
	t.low, t.high = min(burst, t.low+from*rate), min(burst, t.high+to*rate)
}
