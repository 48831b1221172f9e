package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

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
