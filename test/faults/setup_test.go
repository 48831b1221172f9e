package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// binary is the path of the service, which TestMain builds once for all tests.
var binary string

func TestMain(m *testing.M) {
	// Most of the time a test waits for the next request of its load. The command line overrides this.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err) // the flag exists
	}
	os.Exit(testenv.WithService(func(path string) int {
		binary = path
		return m.Run()
	}))
}

// long reports whether the tests run in their long form, as `make test-faults` does: an outage of 5 s at 240 requests
// a second. In the short form, of `make test`, it lasts a second.
func long() bool { return os.Getenv("FAULTS") == "long" }

// phases returns the numbers of requests before, during and after a fault.
func phases() (before, during, after int) {
	if long() {
		return rate, 5 * rate, 6 * rate
	}
	return rate, rate * 3 / 2, rate * 2
}

// client is a value of the key that the rules limit.
type client int

const (
	large client = iota
	small
	usedUp // its limit is exhausted before the load begins
	clients
)

func (c client) String() string { return [...]string{"large", "small", "used_up"}[c] }

func (c client) limit() int { return [...]int{500, 20, 20}[c] }

// rules have limits of a year, so that nothing comes back during a test. Each has another algorithm: the sliding window
// counter and the log, which are the default, and the token bucket.
const rules = `
domain: faults
descriptors:
  - { key: client, value: large, rate_limit: { unit: year, requests_per_unit: 500 } }
  - { key: client, value: small, rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: client, value: used_up, rate_limit: { unit: year, requests_per_unit: 20, algorithm: token_bucket } }
`

// replica is a running service that reaches Redis through a proxy of its own.
type replica struct {
	*testenv.RunningService
	proxy   *proxy
	unknown *int // hits of unknown outcome, of a replica that was killed
}

// unknownOutcomes returns how many hits the replica admitted that were sent to Redis and not answered in time, so that
// Redis may have charged them or not.
func (r *replica) unknownOutcomes(t *testing.T) int {
	t.Helper()
	if r.unknown != nil {
		return *r.unknown
	}
	return int(r.metric(t, `extauthz_fallback_units_total{kind="uncertain"}`))
}

// kill ends the replica as a crash would.
func (r *replica) kill(t *testing.T) {
	t.Helper()
	n := r.unknownOutcomes(t)
	r.unknown = &n
	r.Kill()
}

// startReplicas starts n services with one Redis. They have counted each other.
func startReplicas(t *testing.T, n int, redis *testenv.RedisServer) []*replica {
	t.Helper()
	root := testenv.RulesRootWith(t, rules)
	replicas := make([]*replica, n)
	for i := range replicas {
		p := newProxy(t, redis.Addr)
		replicas[i] = &replica{
			proxy: p,
			RunningService: testenv.Service(t, binary, "RUNTIME_ROOT="+root, "REDIS_URL=redis://"+p.addr,
				"REDIS_TIMEOUT=10ms", "RESPONSE_DYNAMIC_METADATA=true"),
		}
	}
	for _, r := range replicas {
		testenv.Eventually(t, func() error {
			if got := r.metric(t, "extauthz_fallback_replicas"); got != float64(n) {
				return fmt.Errorf("one has counted %v", got)
			}
			return nil
		}, fmt.Sprintf("%d replicas to be counted", n))
	}
	return replicas
}

// metric returns the value of a metric, whose name includes its labels.
func (r *replica) metric(t *testing.T, name string) float64 {
	t.Helper()
	return testenv.Metric(t, "http://"+testenv.Loopback(r.DebugPort), name)
}
