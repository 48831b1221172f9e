package bucket

import (
	"fmt"
	"strings"
)

// Algorithm is how a bucket counts. The zero value is not an algorithm.
type Algorithm uint8

// The algorithms. Stores keep the numbers, so a number never changes.
const (
	// SlidingWindowLog remembers each accepted request: at most Requests in any half-open interval of Window.
	SlidingWindowLog Algorithm = iota + 1
	// SlidingWindowCounter weighs the previous window by its share that still lies within the last Window.
	SlidingWindowCounter
	// TokenBucket starts full with Burst tokens and refills Requests tokens in each Window.
	TokenBucket
	// LeakyBucket holds Burst units and leaks Requests units in each Window (GCRA, ITU-T I.371). See TokenBucket.
	LeakyBucket
	// FixedWindow counts within windows aligned to the epoch. Up to twice Requests can pass around an edge.
	FixedWindow
	// CalendarWindow is FixedWindow with the windows of a Calendar. Users choose it by that: it has no word of its own.
	CalendarWindow
	// Concurrency has at most Requests units held at once. Nothing else is counted in it: see Hold.
	Concurrency
)

// SlidingWindow stands for SlidingWindowLog or SlidingWindowCounter, by the size of the limit: see For. Users choose
// it, but no bucket counts by it, so it has no row in the registry.
const SlidingWindow Algorithm = 0x80

// slidingLog is the largest limit for which SlidingWindow means the log. A counter with few requests in a window can
// deny a client for up to two windows. A log of this size takes only some 400 bytes.
const slidingLog = 20

// For returns the algorithm that counts a limit of this size.
func (a Algorithm) For(requests int64) Algorithm {
	switch {
	case a != SlidingWindow:
		return a
	case requests <= slidingLog:
		return SlidingWindowLog
	}
	return SlidingWindowCounter
}

// entry is the description of an algorithm beside its two implementations.
type entry struct {
	// name is its name in rule files, settings and metrics.
	name string
	// letter is its letter in the keys of buckets. It never changes.
	letter byte
	// hasBurst is set if a limit has a capacity of its own beside its rate. The bucket leaks, and holds a debt of time.
	hasBurst bool
	// hasGrants is set if a state has each charge at its time (State.Grants). A unit that is charged at two times counts
	// twice, and a denial may drop the oldest units beyond the limit.
	hasGrants bool
	// queue returns the burst and the Take.AtOnce that Take.Queue sets. It is nil if no request can wait for a bucket.
	queue func(l Limit, ahead int64, cost uint64) (burst, atOnce int64)
	// resets is set if a window ends with all that was used in it.
	resets bool
	// most is the largest Limit.Requests that can be counted exactly.
	most int64
	// calendar is set if the windows are those of Limit.Calendar.
	calendar bool
	// windowless is set if Limit.Window is 0, and only holds are counted.
	windowless bool
	// twin is the Lua file of the engine in Redis; "" for that of the name.
	twin string
	// engine decides in Go.
	engine engine
}

// registry has a row for each algorithm. To add one, add its constant, its row, its Go file, a Lua file of its name,
// and a text file of cases in testdata.
var registry = [...]entry{
	SlidingWindowLog: {
		name: "sliding_window_log", letter: 'l', most: MaxLogRequests, hasGrants: true, engine: slidingWindowLog{},
	},
	SlidingWindowCounter: {name: "sliding_window_counter", letter: 's', most: MaxRequests, engine: slidingWindowCounter{}},
	TokenBucket: {
		name: "token_bucket", letter: 't', most: MaxRequests, hasBurst: true, queue: queueExcess, engine: leakyBucket{},
	},
	LeakyBucket: {
		name: "leaky_bucket", letter: 'k', most: MaxRequests, hasBurst: true, queue: queueAll, engine: leakyBucket{},
	},
	FixedWindow: {name: "fixed_window", letter: 'f', most: MaxWindowRequests, resets: true, engine: fixedWindow{}},
	CalendarWindow: {
		name: "fixed_window", twin: "calendar_window", letter: 'f', most: MaxWindowRequests, resets: true, calendar: true,
		engine: fixedWindow{},
	},
	Concurrency: {name: "concurrency", letter: 'c', most: MaxRequests, windowless: true, engine: concurrency{}},
}

// Algorithms lists the algorithms that count, by the names that users choose: all but Concurrency.
var Algorithms = allAlgorithms()

func allAlgorithms() []Algorithm {
	list := make([]Algorithm, 0, len(registry)-1)
	for a := Algorithm(1); a.known(); a++ {
		if row := &registry[a]; !row.calendar && !row.windowless {
			list = append(list, a)
		}
	}
	return list
}

func (a Algorithm) known() bool { return a > 0 && int(a) < len(registry) }

// String returns the name used in rule files and metrics.
func (a Algorithm) String() string {
	switch {
	case a == SlidingWindow:
		return "sliding_window"
	case !a.known():
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return registry[a].name
}

// Letter returns the letter of the algorithm in the keys of buckets.
func (a Algorithm) Letter() byte { return registry[a].letter }

// HasBurst reports whether the algorithm has a capacity of its own beside its rate.
func (a Algorithm) HasBurst() bool { return a.known() && registry[a].hasBurst }

// HasQueue reports whether requests can wait for a bucket of the algorithm (Take.Queue).
func (a Algorithm) HasQueue() bool { return a.known() && registry[a].queue != nil }

// HasGrants reports whether a state of the algorithm has each charge at its time, in State.Grants.
func (a Algorithm) HasGrants() bool { return a.known() && registry[a].hasGrants }

// Windowless reports whether the algorithm counts only holds, so that its limits have no window.
func (a Algorithm) Windowless() bool { return a.known() && registry[a].windowless }

// Resets reports whether a window of the algorithm ends with all that was used in it, so that none of it counts in the
// next one.
func (a Algorithm) Resets() bool { return a.known() && registry[a].resets }

// Most returns the largest Limit.Requests of the algorithm.
func (a Algorithm) Most() int64 { return registry[a].most }

// Words lists the texts that UnmarshalText accepts, without Concurrency, which only a limit with holds can have.
func (Algorithm) Words() []string {
	names := []string{SlidingWindow.String()}
	for _, a := range Algorithms {
		names = append(names, a.String())
	}
	return names
}

// OtherWord returns what to write for the name that other rate limiters give to an algorithm, "" for another word.
func (Algorithm) OtherWord(word string) string {
	if strings.EqualFold(word, "gcra") {
		return "`token_bucket` and `leaky_bucket` are GCRA: take one of them"
	}
	return ""
}

// MarshalText returns the name.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ErrAlgorithm is the error of Algorithm.UnmarshalText.
var ErrAlgorithm = fmt.Errorf("unknown algorithm: want one of %s", strings.Join(Algorithm(0).Words(), ", "))

// UnmarshalText accepts the name of an algorithm, also of SlidingWindow and Concurrency, in any case.
func (a *Algorithm) UnmarshalText(text []byte) error {
	for _, choice := range append([]Algorithm{SlidingWindow, Concurrency}, Algorithms...) {
		if strings.EqualFold(string(text), choice.String()) {
			*a = choice
			return nil
		}
	}
	return ErrAlgorithm
}
