package main

import "github.com/extauthz/extauthz/pkg/ratelimit/bucket"

// The one client of the picture, as in the table of docs/algorithms.md: a limit of 5 a minute, and tries once a second from
// 0:50 to 2:04, the first ever.
const (
	perMinute         = 5
	firstTry, lastTry = 50, 124 // s
	begin, end        = 48, 128 // s: what the picture shows
)

// grain is what a request costs, and the limit is that many times larger: it decides the same, and what is used can be read
// between whole requests.
const grain = 1000

const second = 1_000_000 // µs, the time of buckets

// history is what one algorithm did.
type history struct {
	passed, denied []int64 // when, in µs
	leaves         []int64 // when those that passed go on, if a queue holds them (max_delay)
	used           []level
}

// level is how much is used at a time, in grains.
type level struct{ at, used int64 }

// simulate lets the client try, and looks at the bucket in between: right before each second, at it, and after the try.
func simulate(algorithm bucket.Algorithm) history {
	limit := bucket.Limit{Algorithm: algorithm, Requests: perMinute * grain, Burst: perMinute * grain, Window: 60 * second}
	var state bucket.State
	ask := func(at int64, cost uint64) bucket.Decision {
		r := bucket.Request{At: at}
		r.Add(bucket.Take{Key: "client", Limit: limit, Cost: cost})
		loaded, o := []bucket.Loaded{{State: state}}, bucket.Outcome{}
		r.Decide(at, loaded, &o)
		state = loaded[0].State
		return o.Decisions[0]
	}
	var h history
	look := func(at int64, d bucket.Decision) { h.used = append(h.used, level{at, limit.Capacity() - d.Remaining}) }
	for s := int64(begin); s <= end; s++ {
		at := s * second
		look(at, ask(at-1, 0))
		look(at, ask(at, 0))
		if s < firstTry || s > lastTry {
			continue
		}
		d := ask(at, grain)
		look(at, d)
		if !d.Allowed {
			h.denied = append(h.denied, at)
			continue
		}
		h.passed = append(h.passed, at)
		if algorithm == bucket.LeakyBucket {
			h.leaves = append(h.leaves, at+d.Delay)
		}
	}
	return h
}

// most is the largest number of these times, which are in order, within any interval of this length.
func most(times []int64, length int64) int {
	n := 0
	for i := range times {
		j := i
		for j < len(times) && times[j] < times[i]+length {
			j++
		}
		n = max(n, j-i)
	}
	return n
}
