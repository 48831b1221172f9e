package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
	"github.com/extauthz/extauthz/pkg/reply"
)

// metrics collects the counters of the other parts when Prometheus scrapes them. No label has a value that a client
// chose, except if a rule sets detailed_metric or value_to_metric. The number of these values is bounded.
type metrics struct {
	*requests
	listeners listeners
}

// Build is what a program was built from.
type Build struct{ Version, Revision, GoVersion string }

// samples receives the values of metrics. Each method defines a metric, and returns a function that sends one value.
type samples chan<- prometheus.Metric

func (s samples) counter(name, help string, labels ...string) func(v uint64, values ...string) {
	send := s.metric(prometheus.CounterValue, name, help, labels)
	return func(v uint64, values ...string) { send(float64(v), values...) }
}

func (s samples) gauge(name, help string, labels ...string) func(v float64, values ...string) {
	return s.metric(prometheus.GaugeValue, name, help, labels)
}

func (s samples) metric(kind prometheus.ValueType, name, help string, labels []string) func(v float64,
	values ...string) {
	d := prometheus.NewDesc("extauthz_"+name, help, labels, nil)
	return func(v float64, values ...string) { s <- prometheus.MustNewConstMetric(d, kind, v, values...) }
}

// Describe sends nothing, because the metrics depend on the rules.
func (*metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads all counters.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	to := samples(ch)
	m.collectDecisions(to)
	m.collectAuthorization(to)
	m.collectStores(to)
	m.files.collect(to)
	m.collectRules(to)
	m.collectListeners(to)
	to.counter("log_left_out_total",
		"Log records that were left out because stderr was blocked.")(m.stderr.leftOut.Load())
	to.gauge("build_info",
		"1 for the version that is running.", "version", "revision", "goversion")(1, m.Build.Version, m.Build.Revision,
		m.Build.GoVersion)
}

func (m *metrics) collectDecisions(to samples) {
	decided, ended, undecided := map[[4]string]uint64{}, map[[4]string]uint64{}, map[[3]string]uint64{}
	m.live.Limits().EachCounters(func(s ratelimit.Series, n *ratelimit.Counters) { // rules may share a name
		decided[[...]string{s.Domain, s.Rule, s.Limit, "allowed"}] += n.Allowed.Descriptors()
		decided[[...]string{s.Domain, s.Rule, s.Limit, "denied"}] += n.Denied.Descriptors()
		decided[[...]string{s.Domain, s.Rule, s.Limit, "shadow_denied"}] += n.ShadowDenied.Descriptors()
		undecided[[...]string{s.Domain, s.Rule, s.Limit}] += n.Undecided.Load()
		if n.HasHolds() {
			ended[[...]string{s.Domain, s.Rule, s.Limit, "settled"}] += n.Settled.Load()
			ended[[...]string{s.Domain, s.Rule, s.Limit, "unknown"}] += n.Unknown.Load()
			ended[[...]string{s.Domain, s.Rule, s.Limit, "expired"}] += n.Expired.Load()
			ended[[...]string{s.Domain, s.Rule, s.Limit, "undone"}] += n.Undone.Load()
		}
	})
	decisions := to.counter("ratelimit_decisions_total",
		"Descriptors that a limit decided, by decision: allowed, denied, shadow_denied. "+
			"Of several limits of a rule, the tightest counts. A limit in shadow beside others counts its denials.",
		"domain", "rule", "limit", "decision")
	for name, n := range decided {
		decisions(n, name[:]...)
	}
	failures := to.counter("ratelimit_undecided_total",
		"Descriptors that the store could not decide and on_store_error answered.", "domain", "rule", "limit")
	for name, n := range undecided {
		failures(n, name[:]...)
	}
	ends := to.counter("ratelimit_hold_ends_total",
		"Holds that have ended, by end: settled, expired (and a request to the bucket has found that), or undone because "+
			"the call has ended before its answer. "+
			"The end unknown counts settlements that have found no hold; their cost is charged all the same.",
		"domain", "rule", "limit", "end")
	for name, n := range ended {
		ends(n, name[:]...)
	}
	m.collectHolds(to)
	t := m.limiter.Totals()
	requests := to.counter("ratelimit_requests_total",
		"Requests with a limit, by what decided, as in the log of decisions.", "decided_by")
	for source := range t.Decided {
		requests(t.Decided[source].Load(), ratelimit.Decider(source).String())
	}
	requestLimits := to.counter("ratelimit_override_decisions_total",
		"Descriptors with a limit that Envoy has sent, and no rule with `override`, by decision.", "decision")
	requestLimits(t.RequestLimits.Allowed.Descriptors(), "allowed")
	requestLimits(t.RequestLimits.Denied.Descriptors(), "denied")
	unmatched := to.counter("ratelimit_unmatched_total", "Descriptors that no rule matched.", "domain")
	unknown := to.counter("ratelimit_unknown_domain_total",
		"Requests for a domain without rules. Beyond 20 of these domains, the label is other.", "domain")
	m.limiter.EachMiss(func(domain string, c *ratelimit.MissCounters) {
		unmatched(c.Unmatched.Load(), domain)
		unknown(c.UnknownDomain.Load(), domain)
	})
	to.counter("ratelimit_hold_not_undone_total",
		"Calls that have ended before their answer, and whose holds were not removed. They end by their ttl.",
	)(t.NotUndone.Load())
	to.counter("ratelimit_hold_negative_total",
		"Reserves and settlements with is_negative_hits, which is ignored.")(t.NegativeHolds.Load())
	to.counter("ratelimit_global_shadow_total", "Requests over a limit that SHADOW_MODE let pass.")(t.GlobalShadow.Load())
	failed := to.counter("store_errors_total",
		"Requests that the store could not decide, by the policy that answered (none when strict).", "policy")
	failed(t.StoreErrors[0].Load(), "none")
	for _, p := range []ratelimit.StoreErrorPolicy{ratelimit.Deny, ratelimit.Local, ratelimit.Allow} {
		failed(t.StoreErrors[p].Load(), p.String())
	}
	to.counter("store_unknown_outcome_total",
		"Requests of store_errors_total that Redis may have charged anyway.")(t.UnknownOutcomes.Load())
}

// collectHolds sends what is known of live holds. Limits with one name add up.
func (m *metrics) collectHolds(to samples) {
	number := to.gauge("ratelimit_holds", "Live holds of a limit with hold, "+knownHolds, "domain", "rule", "limit")
	units := to.gauge("ratelimit_held_units", "Units of the holds of extauthz_ratelimit_holds.", "domain", "rule", "limit")
	sums := map[[3]string]bucket.SomeHolds{}
	m.live.Limits().EachHolds(m.liveHolds, func(r *ratelimit.Rule, l *ratelimit.RuleLimit, sum bucket.SomeHolds) {
		name := [...]string{r.Domain, r.Name, l.Policy}
		sums[name] = sums[name].Plus(sum)
	})
	for name, sum := range sums {
		number(float64(sum.Number), name[:]...)
		units(float64(sum.Units), name[:]...)
	}
}

// knownHolds is which live holds a replica knows.
const knownHolds = "in the memory store: all. " +
	"With Redis: those of the buckets that this replica has decided on, as the " +
	"last answers of Redis showed them, until they expire. Replicas show the same holds: use max, not sum."

// liveHolds returns the sums of live holds by Take.Rule.
func (st *stores) liveHolds() map[uint64]bucket.SomeHolds {
	if st.memory != nil {
		return st.memory.LiveHolds()
	}
	return st.known.LiveHolds()
}

func (m *metrics) collectAuthorization(to samples) {
	decisions := to.counter("authz_decisions_total",
		"Decisions of ext_authz by reason. The domain is empty if it has no policy.", "domain", "reason")
	m.authorizer.EachDecision(func(domain string, r reply.Reason, n uint64) { decisions(n, domain, string(r)) })
	failures := to.counter("authz_failures_total",
		"Requests without a valid credential, by what is wrong with it and by the answer: refused (401, 403), "+
			"limited (429), passed (none was needed).", "reason", "answer")
	m.authorizer.EachFailure(func(r reply.Reason, answer authz.FailureAnswer, n uint64) {
		failures(n, string(r), string(answer))
	})
	to.counter("authz_untrusted_hops_total",
		"Requests whose x-forwarded-for did not end with the address of the peer, where the policy has "+
			"trusted_hops.")(m.authorizer.UntrustedHops())
	to.gauge("authz_held", "Answers that are held for a max_delay now.")(float64(m.queue.Held.Load()))
	to.counter("authz_delayed_total", "Answers that were held for a max_delay.")(m.queue.Delayed.Load())
	to.counter("authz_not_held_total", "Answers that could not be held for a max_delay, because too many were held or "+
		"Envoy would not wait.")(m.queue.NotHeld.Load())
	to.counter("authz_dropped_headers_total",
		"Headers that were not sent because their name or value is not valid.")(m.DroppedHeaders())
	issuerKeys := to.gauge("jwks_keys", "Trusted keys of an issuer.", "source")
	issuerRead := to.gauge("jwks_last_success_timestamp_seconds", "Time at which the keys of an issuer were last read.",
		"source")
	issuerFailures := to.counter("jwks_failures_total", "Failed attempts to read the keys of an issuer.", "source")
	for _, s := range m.tokens.Sources() {
		issuerKeys(float64(s.Keys), s.Name)
		if !s.LastSuccess.IsZero() {
			issuerRead(float64(s.LastSuccess.UnixNano())/1e9, s.Name)
		}
		issuerFailures(s.Failures, s.Name)
	}
	calls := to.counter("introspection_calls_total", "Tokens about which an issuer had to be asked, by the answer: "+
		"active, inactive, failed (503), refused (503: 64 calls ran).", "url", "answer")
	for a, n := range m.opaque.Stats() {
		calls(n, a.URL, a.Kind)
	}
	keys := m.keys.keys.Stats()
	to.gauge("api_keys", "API keys.")(float64(keys.Keys))
	to.gauge("api_keys_expiring", "API keys that are valid now and will end within 7 days.")(float64(keys.Expiring))
	to.gauge("api_keys_weak", "API keys that a person has chosen, which can be guessed.")(float64(keys.Weak))
	if m.keys.store != nil {
		to.gauge("api_keys_refused",
			"API keys in Redis that are refused: not signed, not readable, or put back.")(float64(m.keys.refused.Load()))
		confirmed := 0.0
		if last := m.keys.confirmed.Load(); last != nil {
			confirmed = float64(last.UnixNano()) / 1e9
		}
		to.gauge("api_keys_confirmed_timestamp_seconds",
			"Time at which Redis last confirmed the API keys in use; 0 for never.")(confirmed)
	}
}

func (m *metrics) collectStores(to samples) {
	var memory memstore.Stats
	if m.redis != nil {
		m.collectRedis(to)
		memory.Stats = m.collectKnown(to)
	} else {
		memory = m.memory.Stats()
	}
	to.gauge("memory_buckets",
		"Buckets in memory: those of the embedded store, or with Redis those that are remembered.")(float64(memory.Buckets))
	to.counter("memory_evicted_total",
		"Buckets in use that were replaced because MEMORY_MAX_BUCKETS was reached, first those of the rule with "+
			"the most.")(memory.Evicted)
	to.counter("memory_evicted_holding_total",
		"Buckets with live holds that were replaced because MEMORY_MAX_BUCKETS was reached.")(memory.EvictedHolds)
	to.counter("memory_expired_total", "Buckets that were removed because they were empty.")(memory.Expired)
	to.gauge("memory_holds", "Live holds in memory, with those that have expired since the last request to their bucket.")(
		float64(memory.Holds))
	to.counter("memory_full_holds_total",
		"Reserves that were denied because MEMORY_MAX_HOLDS was reached.")(memory.FullHolds)
	to.counter("memory_snapshot_failures_total", "Snapshots that could not be written.")(memory.FailedSnapshots)
}

func (m *metrics) collectRedis(to samples) {
	all := true
	node := to.gauge("store_node_up", "1 while this Redis answers, else 0: an address, or the name of the master of "+
		"sentinels; store is per_second for REDIS_PERSECOND, else main.", "node", "store")
	for _, n := range m.redis.Nodes() {
		all = all && n.Up
		store := "main"
		if n.PerSecond {
			store = "per_second"
		}
		node(number(n.Up), n.Name, store)
	}
	to.gauge("store_up", "1 while every Redis answers, else 0.")(number(all))
}

// collectKnown sends what is done with the known states of buckets in Redis, and returns the figures of their memory.
func (m *metrics) collectKnown(to samples) table.Stats {
	s := m.known.Stats()
	units := to.counter("fallback_units_total",
		"Units that on_store_error: local has admitted, by what became of them: admitted (all), caught_up (Redis has "+
			"charged them since), uncertain (Redis may have charged them, so they are not caught up), minted (caught up, "+
			"but over the limit by then).", "kind")
	units(s.Admitted, "admitted")
	units(s.CaughtUp, "caught_up")
	units(s.Uncertain, "uncertain")
	units(s.Minted, "minted")
	to.gauge("fallback_replicas",
		"Number of replicas by which limits are divided while Redis does not decide: LOCAL_FALLBACK_REPLICAS, or as many as "+
			"have been counted last.")(float64(s.Replicas))
	to.gauge("fallback_owing_buckets",
		"Buckets whose units were admitted without Redis and wait until Redis charges them.")(float64(s.Owing))
	leased := to.counter("lease_units_total",
		"Units of limits with a lease, by what became of them: charged (Redis has charged them in advance), used (they have "+
			"passed without Redis). The rest is held, or stays charged until its window ends or its bucket has drained.", "kind")
	leased(s.LeaseCharged, "charged")
	leased(s.LeaseUsed, "used")
	to.counter("store_floors_total",
		"Requests to a bucket that carried its last known state, because Redis may have lost it.")(s.Floors)
	to.counter("store_losses_total", "Answers of Redis that showed less than was known of a bucket.")(s.Losses)
	to.counter("store_unreadable_states_total", "States in answers of Redis that were ignored.")(s.Unreadable)
	return s.Memory
}

func (m *metrics) collectRules(to samples) {
	m.source.mu.Lock()
	defer m.source.mu.Unlock()
	to.gauge("config_last_reload_successful",
		"0 while newer rules are refused for their mistakes.")(number(m.source.refused == nil))
	if !m.source.since.IsZero() {
		to.gauge("config_last_reload_success_timestamp_seconds",
			"Time at which the active rules were loaded.")(float64(m.source.since.UnixNano()) / 1e9)
	}
	to.counter("config_reload_failures_total", "Rules that were refused for their mistakes.")(m.source.failures)
	to.gauge("config_source_up",
		"1 while the xDS server can be reached, else 0; 1 for rule files.")(number(m.source.server == nil ||
		m.source.server.Connected()))
	active := m.live.Active()
	to.gauge("config_info", "1 for the hash of the active rules.", "generation")(1, active.Set.Generation)

	// The limits have the names that clients see. Of several with one name, the first counts.
	limit := to.gauge("rule_limit",
		"Requests that an active limit allows in its window, for each value of its rule.", "domain", "rule", "limit")
	window := to.gauge("rule_window_seconds", "Present window of an active limit in seconds.", "domain", "rule", "limit")
	seen, now := make(map[[3]string]bool), time.Now().UnixMicro()
	for _, rule := range active.Limits.All() {
		for i := range rule.Limits {
			l := &rule.Limits[i]
			name := [3]string{rule.Domain, rule.Name, l.Policy}
			if rule.Unlimited || seen[name] {
				continue
			}
			seen[name] = true
			limit(float64(l.Requests), name[:]...)
			window(float64(l.Length(now))/1e6, name[:]...)
		}
	}
}

func (m *metrics) collectListeners(to samples) {
	connections := to.gauge("connections", "Open connections.", "port")
	inflight := to.gauge("inflight_bytes", "Most memory that the requests in flight can take.", "port")
	cut := to.counter("cut_total",
		"Connections closed and requests reset to protect the service, by reason.", "port", "reason")
	plaintext := to.gauge("plaintext_listener", "1 for a listener without TLS that other machines can reach.", "listener")
	open := m.listeners.plaintext()
	for port, l := range m.listeners.guarded {
		connections(float64(l.Connections()), port)
		inflight(float64(l.Held()), port)
		for reason := range guard.Reasons {
			cut(l.Cuts(reason), port, reason.String())
		}
		plaintext(number(open[port]), port)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
