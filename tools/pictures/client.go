package main

import (
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// The client is that of the table in docs/algorithms.md: 5 requests a minute, and one a second from 0:50 to 2:04.
const (
	perMinute         = 5
	firstTry, lastTry = 50, 124 // s
	begin, end        = 48, 128 // s, the time that the picture shows
)

// grain is the cost of a request. The limit is larger by the same factor, so the decisions do not change, and the
// picture shows usage in fractions of a request.
const grain = 1000

const second = 1_000_000 // µs, the unit of time in package bucket

// history has the decisions of one algorithm.
type history struct {
	passed, denied []int64 // times in µs
	leaves         []int64 // times at which allowed requests leave the queue, if there is one (max_delay)
	used           []level
}

// level is the used part of the limit at a time, in grains.
type level struct{ at, used int64 }

// simulate sends the client's requests. It reads the bucket right before each second, at it, and after the request.
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

// most returns the largest number of times within any interval of this length. The times are sorted.
func most(times []int64, length int64) int {
	n := 0
	for i := range times {
		j, _ := slices.BinarySearch(times, times[i]+length)
		n = max(n, j-i)
	}
	return n
}
