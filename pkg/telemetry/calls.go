package telemetry

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
)

// Calls counts and times the calls of the gRPC server, and those of ext_authz over HTTP. Use NewCalls.
type Calls struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	methods  sync.Map // string -> *Method
	statsd   *Statsd  // nil for none
}

// Method counts the calls of one method.
type Method struct {
	duration prometheus.Histogram
	send     func(time.Duration) // nil unless it is sent to statsd
	codes    [codes.Unauthenticated + 1]prometheus.Counter
}

// NewCalls registers the metrics of calls.
func NewCalls(r prometheus.Registerer) *Calls {
	return &Calls{
		requests: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "extauthz_requests_total", Help: "Calls by method and gRPC code.",
		}, []string{"rpc", "code"}),
		duration: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "extauthz_request_duration_seconds", Help: "Time to answer a call.",
			// From the time of a decision in memory to beyond Envoy's default timeouts (20 ms and 200 ms). Three quarters of
			// each are bounds too, for alerts. From 5 ms, they include those of envoyproxy/ratelimit.
			Buckets: []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 15e-3, 20e-3, 25e-3, 50e-3,
				100e-3, 150e-3, 200e-3, 250e-3, 500e-3, 1, 2.5, 5, 10},
		}, []string{"rpc"}),
	}
}

// SendTimes sends the time of each call to a statsd server. It must be called before the first Observe.
func (c *Calls) SendTimes(s *Statsd) { c.statsd = s }

// Of returns the counter of a method, for calls that end together. No client chooses a method.
func (c *Calls) Of(fullMethod string) *Method {
	m, ok := c.methods.Load(fullMethod)
	if !ok {
		m, _ = c.methods.LoadOrStore(fullMethod, c.method(fullMethod))
	}
	return m.(*Method)
}

// Observe counts one call.
func (m *Method) Observe(code codes.Code, took time.Duration) {
	m.duration.Observe(took.Seconds())
	if int(code) < len(m.codes) {
		m.codes[code].Inc()
	}
	if m.send != nil {
		m.send(took)
	}
}

// each calls f for the methods that envoyproxy/ratelimit has, too, by their last name.
func (c *Calls) each(f func(rpc string, m *Method)) {
	c.methods.Range(func(key, m any) bool {
		if rpc := rpcOfRatelimit(key.(string)); rpc != "" {
			f(rpc, m.(*Method))
		}
		return true
	})
}

// rpcOfRatelimit returns the last name of a method that envoyproxy/ratelimit has, too, and "" for another method.
func rpcOfRatelimit(fullMethod string) string {
	service, rpc, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if service == "envoy.service.ratelimit.v3.RateLimitService" || service == "grpc.health.v1.Health" {
		return rpc
	}
	return ""
}

// read returns the number of calls and their times in seconds.
func (m *Method) read() *dto.Histogram {
	var out dto.Metric
	if err := m.duration.Write(&out); err != nil {
		panic(err) // it only copies
	}
	return out.Histogram
}

func (c *Calls) method(fullMethod string) *Method {
	m := &Method{duration: c.duration.WithLabelValues(fullMethod).(prometheus.Histogram)}
	if rpc := rpcOfRatelimit(fullMethod); rpc != "" && c.statsd != nil {
		m.send = c.statsd.timer(rpc)
	}
	for code := range m.codes {
		m.codes[code] = c.requests.WithLabelValues(fullMethod, codes.Code(code).String())
	}
	return m
}

// NewRedisTimes registers the histogram of calls to Redis, and returns the function that records one.
func NewRedisTimes(r prometheus.Registerer) func(time.Duration) {
	times := promauto.With(r).NewHistogram(prometheus.HistogramOpts{
		Name: "extauthz_redis_call_duration_seconds",
		Help: "Time of a call to Redis that decides, until the answer or an error. Concurrent requests share a call.",
		// From a Redis on this machine to beyond the default of REDIS_TIMEOUT, 50 ms.
		Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2e-3, 4e-3, 8e-3, 15e-3, 50e-3, 250e-3},
	})
	return func(took time.Duration) { times.Observe(took.Seconds()) }
}
