package telemetry

import (
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Stats are the statistics of envoyproxy/ratelimit: those of a rule begin with "ratelimit.service.rate_limit.".
type Stats struct {
	// Rules returns the active rules, Totals the counters that belong to no rule.
	Rules  func() *ratelimit.Rules
	Totals *ratelimit.Totals
	// Loads returns how many times rules were loaded, and how many times they were refused for their mistakes.
	Loads func() (succeeded, failed uint64)
	Calls *Calls
	// Pools return the opened and closed connections of redis_pool and redis_per_second_pool. Optional.
	Pools map[string]func() (opened, closed uint64)
}

// Counters returns all counters by name. Only detailed_metric and value_to_metric put values of clients into names.
func (s *Stats) Counters() map[string]uint64 {
	const service = "ratelimit.service."
	counters := make(map[string]uint64)
	s.Rules().EachCounters(func(name ratelimit.Series, c *ratelimit.Counters) {
		rule := service + "rate_limit." + statName(name.Domain+"."+name.Rule)
		allowed, denied, shadow := c.Allowed.Hits(), c.Denied.Hits(), c.ShadowDenied.Hits()
		if name.Beside { // the other limits count the hits
			counters[rule+".shadow_mode"] += shadow
			return
		}
		// Rules, and limits of a rule, can have a name in common.
		counters[rule+".total_hits"] += allowed + denied + shadow + c.Fitting.Load() + c.Failed.Load()
		counters[rule+".within_limit"] += allowed
		counters[rule+".over_limit"] += denied + shadow
		counters[rule+".near_limit"] += c.Near.Load()
		counters[rule+".shadow_mode"] += shadow
		counters[rule+".over_limit_with_local_cache"] += c.Cached.Load()
	})
	counters[service+"config_load_success"], counters[service+"config_load_error"] = s.Loads()
	counters[service+"global_shadow_mode"] = s.Totals.GlobalShadow.Load()
	counters[service+"call.should_rate_limit.service_error"] = s.Totals.Invalid.Load()
	undecided := uint64(0)
	for i := range s.Totals.StoreErrors {
		undecided += s.Totals.StoreErrors[i].Load()
	}
	counters[service+"call.should_rate_limit.redis_error"] = undecided
	s.Calls.each(func(rpc string, m *Method) {
		counters["ratelimit_server."+rpc+".total_requests"] = m.read().GetSampleCount()
	})
	for name, counts := range s.Pools {
		opened, closed := counts()
		counters["ratelimit."+name+".cx_total"], counters["ratelimit."+name+".cx_local_close"] = opened, closed
	}
	return counters
}

// Gauges returns all gauges by their names: the open connections of each pool.
func (s *Stats) Gauges() map[string]uint64 {
	gauges := make(map[string]uint64, len(s.Pools))
	for name, counts := range s.Pools {
		opened, closed := counts()
		gauges["ratelimit."+name+".cx_active"] = opened - closed
	}
	return gauges
}

var ipv4 = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// statName replaces what ends a name in the statsd protocol, and the dots of IPv4 addresses, which separate levels.
func statName(s string) string {
	s = strings.Map(func(c rune) rune {
		if c == ':' || c == '|' || unicode.IsControl(c) {
			return '_'
		}
		return c
	}, s)
	return ipv4.ReplaceAllStringFunc(s, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
}

// Mapped collects statistics for Prometheus, by the names and labels of a mapping. Use NewMapped.
type Mapped struct {
	stats   *Stats
	mapping *Mapping

	mu sync.Mutex
	// known are the series of the counters of the last scrape, by statistic, so that a scrape maps only new ones.
	known map[string]*series
}

// series is a metric with its labels, of one statistic or of several.
type series struct {
	name   string
	labels prometheus.Labels
	scale  float64
	drop   bool
	desc   *prometheus.Desc
	key    string // is equal for equal names and labels
}

// NewMapped returns a collector of statistics.
func NewMapped(s *Stats, m *Mapping) *Mapped { return &Mapped{stats: s, mapping: m} }

// Describe sends nothing, because the metrics depend on the rules.
func (*Mapped) Describe(chan<- *prometheus.Desc) {}

// Collect reads all statistics. Where several have the same name and labels, their sum is sent.
func (m *Mapped) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.known
	m.known = make(map[string]*series, len(before))
	sums, counted := make(map[string]float64), make(map[string]*series)
	names := make(map[string]bool)
	for stat, n := range m.stats.Counters() {
		s := before[stat]
		if s == nil {
			s = m.mapping.series(stat, mapper.MetricTypeCounter)
		}
		m.known[stat] = s
		if s.drop {
			continue
		}
		sums[s.key] += float64(n) * s.scale
		counted[s.key], names[s.name] = s, true
	}
	for key, s := range counted {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, sums[key])
	}
	timed := make(map[string]bool)
	for stat, n := range m.stats.Gauges() {
		s := m.mapping.series(stat, mapper.MetricTypeGauge)
		if s.drop || names[s.name] || timed[s.key] {
			continue // as below
		}
		timed[s.key] = true
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(n)*s.scale)
	}
	m.stats.Calls.each(func(rpc string, calls *Method) {
		s := m.mapping.series("ratelimit_server."+rpc+".response_time", mapper.MetricTypeObserver)
		if s.drop || names[s.name] || timed[s.key] {
			return // Prometheus refuses a scrape with two types or values for one series
		}
		timed[s.key] = true
		h := calls.read()
		const millisecond = 1000
		scale := millisecond * s.scale
		buckets := make(map[float64]uint64, len(h.Bucket))
		for _, b := range h.Bucket {
			buckets[b.GetUpperBound()*scale] = b.GetCumulativeCount()
		}
		ch <- prometheus.MustNewConstHistogram(s.desc, h.GetSampleCount(), h.GetSampleSum()*scale, buckets)
	})
}

// statHelp describes the metrics of the default mapping.
var statHelp = map[string]string{
	"ratelimit_service_rate_limit_total_hits":   "Hits on a rule.",
	"ratelimit_service_rate_limit_within_limit": "Hits that their limit allowed.",
	"ratelimit_service_rate_limit_over_limit":   "Hits over their limit, also of rules in shadow mode.",
	"ratelimit_service_rate_limit_near_limit": "Hits above the share NEAR_LIMIT_RATIO of their limit that fit, or " +
		"would have fit.",
	"ratelimit_service_rate_limit_shadow_mode":                 "Hits over the limit of a rule in shadow mode.",
	"ratelimit_service_rate_limit_over_limit_with_local_cache": "Hits over their limit that were denied without Redis.",
	"ratelimit_service_should_rate_limit_error": "Requests that failed, by err_type: redis_error (the store could not " +
		"decide; on_store_error did), service_error (no domain, no descriptors, or no rules yet).",
	"ratelimit_service_total_requests":        "Calls by method.",
	"ratelimit_service_response_time_seconds": "Time to answer a call.",
	"ratelimit_service_config_load_success":   "Rules that became active.",
	"ratelimit_service_config_load_error":     "Rules that were refused for their mistakes.",
	"ratelimit_service_global_shadow_mode":    "Requests over a limit that SHADOW_MODE let pass.",

	"ratelimit_redis_pool_cx_total":                  "Connections to Redis that were opened.",
	"ratelimit_redis_pool_cx_local_close":            "Connections to Redis that this service has closed.",
	"ratelimit_redis_pool_cx_active":                 "Open connections to Redis.",
	"ratelimit_redis_per_second_pool_cx_total":       "Connections to the second Redis that were opened.",
	"ratelimit_redis_per_second_pool_cx_local_close": "Connections to the second Redis that this service has closed.",
	"ratelimit_redis_per_second_pool_cx_active":      "Open connections to the second Redis.",
}
