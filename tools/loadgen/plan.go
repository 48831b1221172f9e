package loadgen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Plan is one measurement.
type Plan struct {
	// Address is host:port, or unix:/path.
	Address string
	// TLS is the configuration of the connections, with the name of the server. nil means plaintext.
	TLS *tls.Config

	Message Message
	Client  Client
	Keys    Keys

	Connections int
	// InFlight is how many requests may be in flight over all connections. Without a rate, so many always are.
	InFlight int
	// Rate is how many requests per second are sent, whether or not earlier ones are answered. Latency then counts from
	// the time at which a request should have been sent. 0 means that an answer starts the next request.
	Rate int

	// Duration and Count bound the measurement. Count 0 means as many requests as fit.
	Duration time.Duration
	Count    int
	// Timeout bounds the wait for a connection and for an answer. The server learns it from the header grpc-timeout.
	Timeout time.Duration

	// Redis is the Redis of the server, as host:port or URL. "" means that its commands are not counted.
	Redis string
	// Progress receives the state once a second. nil means nothing.
	Progress func(Progress)
}

// Progress is the state of a measurement that runs.
type Progress struct {
	Passed           time.Duration
	Answers, Errors  int64
	AnswersPerSecond float64 // during the last second
}

// The bounds of a plan.
const (
	MostConnections = 10_000
	MostInFlight    = 100_000
	MostRate        = 1_000_000
	MostDuration    = time.Hour
	MostCount       = 1_000_000_000
	LeastTimeout    = 10 * time.Millisecond
	MostTimeout     = time.Minute
)

// Check returns all mistakes of the plan, named as the flags of extauthz-tools bench.
func (p *Plan) Check() error {
	var all []error
	within := func(name string, value, least, most int) {
		if value < least || value > most {
			all = append(all, fmt.Errorf("--%s %d: want %d to %d", name, value, least, most))
		}
	}
	within("connections", p.Connections, 1, MostConnections)
	within("in-flight", p.InFlight, 1, MostInFlight)
	within("rate", p.Rate, 0, MostRate)
	within("requests", p.Count, 0, MostCount)
	if !slices.Contains(Clients, p.Client) {
		all = append(all, fmt.Errorf("--client %q: want one of %v", p.Client, Clients))
	}
	if p.InFlight < p.Connections && p.Connections <= MostConnections {
		all = append(all, fmt.Errorf("--in-flight %d: want at least one request for each of the %d connections",
			p.InFlight, p.Connections))
	}
	if p.Duration <= 0 || p.Duration > MostDuration {
		all = append(all, fmt.Errorf("--duration %s: want more than 0 and at most %s", p.Duration, MostDuration))
	}
	if p.Timeout < LeastTimeout || p.Timeout > MostTimeout {
		all = append(all, fmt.Errorf("--timeout %s: want %s to %s", p.Timeout, LeastTimeout, MostTimeout))
	}
	if len(p.Message.bytes) > maxFrame {
		all = append(all, fmt.Errorf("a request of %d bytes: want at most %d, one frame of HTTP/2", len(p.Message.bytes),
			maxFrame))
	}
	return errors.Join(all...)
}

// share returns how many of n things lane i has.
func (p *Plan) share(n, i int) int {
	share := n / p.Connections
	if i < n%p.Connections {
		share++
	}
	return share
}

// due returns the time since the start at which lane i should send its k-th request.
func (p *Plan) due(i int, k int64) time.Duration {
	n := k*int64(p.Connections) + int64(i) // lanes take turns
	return time.Duration(float64(n) / float64(p.Rate) * float64(time.Second))
}
