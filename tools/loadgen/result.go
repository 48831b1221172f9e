package loadgen

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Result is what a measurement found. Times are in µs.
type Result struct {
	Seconds     float64 `json:"seconds"`
	Interrupted bool    `json:"interrupted,omitempty"`
	// Warning is why the result says little, "" if nothing is known.
	Warning     string `json:"warning,omitempty"`
	Connections int    `json:"connections"`
	InFlight    int    `json:"in_flight"`
	Rate        int    `json:"rate,omitempty"`
	Keys        string `json:"keys"`
	Client      Client `json:"client"`

	// Sent is how many requests were sent. Unsent were due in an open loop, and could not be sent before the end.
	Sent   int64 `json:"sent"`
	Unsent int64 `json:"unsent"`
	// Answers have a decision: Allowed or Denied.
	Answers          int64     `json:"answers"`
	Allowed          int64     `json:"allowed"`
	Denied           int64     `json:"denied"`
	AnswersPerSecond float64   `json:"answers_per_second"`
	Errors           int64     `json:"errors"`
	Failures         []Failure `json:"failures"`
	Reconnects       int64     `json:"reconnects"`

	Latency Latency `json:"latency"`
	// Server and Redis are nil if unknown.
	Server *ServerCost `json:"server,omitempty"`
	Redis  *RedisCost  `json:"redis,omitempty"`
}

// Failure is a kind of error, by the status of gRPC.
type Failure struct {
	Status string `json:"status"`
	Count  int64  `json:"count"`
	// First is the reason of the first one.
	First string `json:"first"`
}

// Latency is that of answers, in µs. Requests without an answer are errors and do not count.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// ServerCost is what the processes of the server used.
type ServerCost struct {
	PIDs []int `json:"pids"`
	// CPU is that of one request, in µs.
	CPU float64 `json:"cpu_per_request"`
	// Memory is the resident memory at the end, in bytes.
	Memory int64 `json:"memory"`
}

// cost returns what the processes have used for each of n requests, after what was used before. nil is unknown.
func (l *listener) cost(before time.Duration, n int64) *ServerCost {
	used, err := l.cpu()
	if err != nil {
		return nil
	}
	return &ServerCost{PIDs: l.pids, CPU: micros(int64(used-before)) / float64(n), Memory: l.memory()}
}

// RedisCost is what Redis used for one request. Its commands include those that scripts call.
type RedisCost struct {
	Commands float64 `json:"commands_per_request"`
	Scripts  float64 `json:"script_calls_per_request"`
	CPU      float64 `json:"cpu_per_request"` // µs
}

// Total is the number of answers and errors.
func (r *Result) Total() int64 { return r.Answers + r.Errors }

// result sums up a measurement that has ended.
func (m *measurement) result() *Result {
	all := m.tally
	r := &Result{
		Connections: m.plan.Connections, InFlight: m.plan.InFlight, Rate: m.plan.Rate,
		Keys: m.plan.Keys.String(), Client: m.plan.Client,
		Allowed: all.allowed, Denied: all.denied, Answers: all.allowed + all.denied, Errors: all.failed,
		Reconnects: all.reconnects, Failures: []Failure{},
		Latency: Latency{
			P50: micros(all.latency.ValueAtQuantile(50)), P99: micros(all.latency.ValueAtQuantile(99)),
			P999: micros(all.latency.ValueAtQuantile(99.9)), Max: micros(all.latency.Max()),
		},
	}
	for _, f := range all.failures {
		r.Failures = append(r.Failures, *f)
	}
	slices.SortFunc(r.Failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Status, b.Status))
	})
	took, spent := time.Duration(0), true
	for _, l := range m.lanes {
		took, spent = max(took, l.lastDone), spent && l.begun >= l.budget
		r.Sent += l.begun
		r.Unsent += m.missed(l)
	}
	if !spent || took == 0 {
		took = m.end()
	}
	r.Seconds = took.Seconds()
	r.AnswersPerSecond = float64(all.inTime) / took.Seconds()
	return r
}

// missed returns how many requests of a lane were due before the end, and not sent.
func (m *measurement) missed(l *lane) int64 {
	if m.plan.Rate == 0 {
		return 0
	}
	due := int64(math.Ceil(m.end().Seconds() * float64(m.plan.Rate))) // of all lanes
	lanes := int64(len(m.lanes))
	return max(min((due-int64(l.index)+lanes-1)/lanes, l.budget)-l.begun, 0)
}

// Thousands returns a whole number with commas.
func Thousands[N int | int64 | float64](n N) string {
	digits := fmt.Sprintf("%.0f", float64(n))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func micros(ns int64) float64 { return float64(ns) / 1000 }
