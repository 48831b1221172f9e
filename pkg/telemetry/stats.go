package telemetry

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Stats are the statistics of envoyproxy/ratelimit, by its names: those of a rule begin with
// "ratelimit.service.rate_limit.domain.key_value.".
type Stats struct {
	// Rules returns the active rules, Totals the counters that belong to no rule.
	Rules  func() *ratelimit.Rules
	Totals *ratelimit.Totals
	// Loads returns how many times rules were loaded, and how many times they were refused for their mistakes.
	Loads func() (succeeded, failed uint64)
	Calls *Calls
}

// Counters returns all counters by their names. The names of rules have no part that a client chose, except if a rule
// sets detailed_metric or value_to_metric.
func (s *Stats) Counters() map[string]uint64 {
	const service = "ratelimit.service."
	counters := make(map[string]uint64)
	s.Rules().EachCounters(func(name ratelimit.Series, c *ratelimit.Counters) {
		rule := service + "rate_limit." + statName(name.Domain+"."+name.Rule)
		allowed, denied, shadow := c.Allowed.Hits(), c.Denied.Hits(), c.ShadowDenied.Hits()
		// Rules, and limits of a rule, can have a name in common.
		counters[rule+".total_hits"] += allowed + denied + shadow + c.Fitting.Load()
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
		count, _ := m.read()
		counters["ratelimit_server."+rpc+".total_requests"] = count
	})
	return counters
}

var ipv4 = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// statName replaces the characters that end a name in the statsd protocol, and the dots of IPv4 addresses, because a
// dot separates the levels of a name.
func statName(s string) string {
	s = strings.Map(func(c rune) rune {
		if c == ':' || c == '|' || unicode.IsControl(c) {
			return '_'
		}
		return c
	}, s)
	return ipv4.ReplaceAllStringFunc(s, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
}
