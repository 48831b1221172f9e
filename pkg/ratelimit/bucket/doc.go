// Package bucket decides whether a request fits a rate limit. It has five algorithms as pure functions of limit,
// state, time and cost: in Go for the embedded store, and in Lua for Redis. Both give the same answers to the
// microsecond. See [Request.Decide] and [Script].
//
// All times are whole microseconds since 1970, all durations whole microseconds. Fractions are compared exactly, so
// rounding never allows one request too many.
package bucket
