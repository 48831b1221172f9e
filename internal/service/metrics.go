package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Collector reads the counters that the service keeps anyway, when Prometheus asks for them.
type Collector struct {
	// Limits returns the active rules, which have counters. Required.
	Limits func() *ratelimit.Rules
	// Limiter has the counters that belong to no rule. Required.
	Limiter *ratelimit.Limiter
	// Authorizer has the counters of ext_authz. Required.
	Authorizer *authz.Authorizer
	// Check describes the ext_authz service, Issuers the sources of tokens' keys, Keys the API keys. Required.
	Check   func() CheckStats
	Issuers func() []IssuerStats
	Keys    func() KeyStats
	// Memory describes the embedded store, the one that decides or the one that takes over. Required.
	Memory func() MemoryStats
	// Store reports whether the remote store can be reached; nil without one.
	Store func() (up bool)
	// Rules describes the rule source. Required.
	Rules func() RuleStats
	// Certificates describes the certificates that the service shows others; nil without any.
	Certificates func() []CertificateStats
	// Build says what binary this is.
	Build Build
}

// CheckStats describes the ext_authz service.
type CheckStats struct {
	// Held is how many answers are held for a max_delay now; Delayed counts those that were, NotHeld those that could not be.
	Held    int64
	Delayed uint64
	NotHeld uint64
	// DroppedHeaders counts headers that could not be sent for their name or value.
	DroppedHeaders uint64
}

// IssuerStats describes a source of tokens' keys.
type IssuerStats struct {
	// Source is the file or URL, from the configuration.
	Source      string
	Keys        int
	LastSuccess time.Time
	Failures    uint64
}

// KeyStats counts API keys.
type KeyStats struct {
	Keys, Expiring, Weak int
	// Shared describes those in Redis; nil when it is not used for keys.
	Shared *SharedKeyStats
}

// SharedKeyStats describes the API keys in Redis.
type SharedKeyStats struct {
	// Confirmed is when Redis last had the keys that are in use; zero for never.
	Confirmed time.Time
	// Refused counts the records that are not signed, cannot be read, or were put back.
	Refused int
}

// MemoryStats describes the embedded store.
type MemoryStats struct {
	Buckets          int64
	Evicted, Expired uint64
	// SnapshotFailures counts snapshots that could not be written.
	SnapshotFailures uint64
}

// RuleStats describes what rules are in force.
type RuleStats struct {
	// Generation is a hash of their text.
	Generation string
	// Since is when they came into force.
	Since time.Time
	// Current is false while newer rules are refused for their mistakes.
	Current bool
	// Held is true while newer rules wait until their files have been quiet.
	Held bool
	// Failures counts refused reloads.
	Failures uint64
}

// CertificateStats describes a certificate of the service.
type CertificateStats struct {
	// Certificate is what it is for, one of a few words.
	Certificate string
	Expiry      time.Time
}

// Build says what a binary was made of.
type Build struct{ Version, Revision, GoVersion string }

var (
	decisions       = desc("ratelimit_decisions_total", "Descriptors that a rule decided, by decision: allowed, denied, shadow_denied.", "domain", "rule", "decision")
	ruleUndecided   = desc("ratelimit_undecided_total", "Descriptors that the store could not decide and on_store_error answered.", "domain", "rule")
	overrides       = desc("ratelimit_override_decisions_total", "Descriptors that brought their own limit, by decision.", "decision")
	unmatched       = desc("ratelimit_unmatched_total", "Descriptors that no rule matched.")
	unknownDomain   = desc("ratelimit_unknown_domain_total", "Requests for a domain without rules.")
	globalShadow    = desc("ratelimit_global_shadow_total", "Requests over a limit that SHADOW_MODE let pass.")
	authzDecisions  = desc("authz_decisions_total", "Decisions of ext_authz by reason.", "reason")
	authzFailures   = desc("authz_failures_total", "Requests without a valid credential, by what is wrong with it and by the answer: refused (401, 403), limited (429), passed (none was needed).", "reason", "answer")
	held            = desc("authz_held", "Answers that are held for a max_delay now.")
	delayed         = desc("authz_delayed_total", "Answers that were held for a max_delay.")
	notHeld         = desc("authz_not_held_total", "Answers that could not be held: too many, or no time.")
	droppedHeaders  = desc("authz_dropped_headers_total", "Headers that could not be sent for their name or value.")
	jwksKeys        = desc("jwks_keys", "Keys of a source that are trusted.", "source")
	jwksSuccess     = desc("jwks_last_success_timestamp_seconds", "When the keys of a source were last read.", "source")
	untrustedHops   = desc("authz_untrusted_hops_total", "Requests whose x-forwarded-for did not end with the address of the peer, where the policy has trusted_hops.")
	jwksFailures    = desc("jwks_failures_total", "Readings of a source that failed.", "source")
	apiKeys         = desc("api_keys", "API keys.")
	apiKeysExpiring = desc("api_keys_expiring", "API keys that are valid now and will end within 7 days.")
	apiKeysWeak     = desc("api_keys_weak", "API keys of somebody's choice, which can be guessed.")
	apiKeysRefused  = desc("api_keys_refused", "API keys in Redis that are refused: not signed, not readable, or put back.")
	keysConfirmed   = desc("api_keys_confirmed_timestamp_seconds", "When Redis last had the API keys that are in use; 0 for never.")
	storeErrors     = desc("store_errors_total", "Requests that the store could not decide, by the policy that answered (none when strict).", "policy")
	unknownOutcomes = desc("store_unknown_outcome_total", "Requests of store_errors_total that may have been charged all the same.")
	storeUp         = desc("store_up", "Whether the remote store answers.")
	memoryBuckets   = desc("memory_buckets", "Buckets in the embedded store.")
	memoryEvicted   = desc("memory_evicted_total", "Buckets that still counted and were replaced because there were MEMORY_MAX_BUCKETS, first those of the rule with the most.")
	memoryExpired   = desc("memory_expired_total", "Buckets that went because they held nothing any more.")
	snapshotErrors  = desc("memory_snapshot_failures_total", "Snapshots that could not be written.")
	reloadOK        = desc("config_last_reload_successful", "0 while newer rules are refused for their mistakes.")
	reloadTime      = desc("config_last_reload_success_timestamp_seconds", "When the rules in force were loaded.")
	reloadFailures  = desc("config_reload_failures_total", "Rules that were refused for their mistakes.")
	reloadHeld      = desc("config_reload_held", "1 while newer rules that lack rules in force wait until their files have been unchanged for 10 s.")
	configInfo      = desc("config_info", "1 for the hash of the rules in force.", "generation")
	ruleLimit       = desc("rule_limit", "Requests that a limit in force allows in its window, for each value of its rule.", "domain", "rule", "limit")
	ruleWindow      = desc("rule_window_seconds", "Window of a limit in force.", "domain", "rule", "limit")
	certificateEnd  = desc("certificate_expiry_timestamp_seconds", "When a certificate of this service ends.", "certificate")
	buildInfo       = desc("build_info", "1 for the version that runs.", "version", "revision", "goversion")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("extauthz_"+name, help, labels, nil)
}

// Describe names no metrics: which there are depends on the rules.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads all counters.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c.Limits().EachCounters(func(domain, name string, n *ratelimit.Counters) {
		counter(decisions, n.Allowed.Load(), domain, name, "allowed")
		counter(decisions, n.Denied.Load(), domain, name, "denied")
		counter(decisions, n.ShadowDenied.Load(), domain, name, "shadow_denied")
		counter(ruleUndecided, n.Undecided.Load(), domain, name)
	})
	t := c.Limiter.Totals()
	counter(overrides, t.Overrides.Allowed.Load(), "allowed")
	counter(overrides, t.Overrides.Denied.Load(), "denied")
	counter(unmatched, t.Unmatched.Load())
	counter(unknownDomain, t.UnknownDomain.Load())
	counter(globalShadow, t.GlobalShadow.Load())
	c.Authorizer.EachReason(func(r reply.Reason, n uint64) { counter(authzDecisions, n, string(r)) })
	counter(untrustedHops, c.Authorizer.UntrustedHops())
	c.Authorizer.EachFailure(func(r reply.Reason, answer authz.FailureAnswer, n uint64) {
		counter(authzFailures, n, string(r), string(answer))
	})
	check := c.Check()
	gauge(held, float64(check.Held))
	counter(delayed, check.Delayed)
	counter(notHeld, check.NotHeld)
	counter(droppedHeaders, check.DroppedHeaders)
	for _, s := range c.Issuers() {
		gauge(jwksKeys, float64(s.Keys), s.Source)
		if !s.LastSuccess.IsZero() {
			gauge(jwksSuccess, float64(s.LastSuccess.UnixNano())/1e9, s.Source)
		}
		counter(jwksFailures, s.Failures, s.Source)
	}
	k := c.Keys()
	gauge(apiKeys, float64(k.Keys))
	gauge(apiKeysExpiring, float64(k.Expiring))
	gauge(apiKeysWeak, float64(k.Weak))
	if k.Shared != nil {
		gauge(apiKeysRefused, float64(k.Shared.Refused))
		confirmed := 0.0
		if !k.Shared.Confirmed.IsZero() {
			confirmed = float64(k.Shared.Confirmed.UnixNano()) / 1e9
		}
		gauge(keysConfirmed, confirmed)
	}
	counter(storeErrors, t.StoreErrors[0].Load(), "none")
	for _, p := range []ratelimit.StoreErrorPolicy{ratelimit.Deny, ratelimit.Local, ratelimit.Allow} {
		counter(storeErrors, t.StoreErrors[p].Load(), p.String())
	}
	counter(unknownOutcomes, t.UnknownOutcomes.Load())
	if c.Store != nil {
		gauge(storeUp, number(c.Store()))
	}
	m := c.Memory()
	gauge(memoryBuckets, float64(m.Buckets))
	counter(memoryEvicted, m.Evicted)
	counter(memoryExpired, m.Expired)
	counter(snapshotErrors, m.SnapshotFailures)
	r := c.Rules()
	gauge(reloadOK, number(r.Current))
	if !r.Since.IsZero() {
		gauge(reloadTime, float64(r.Since.UnixNano())/1e9)
	}
	counter(reloadFailures, r.Failures)
	gauge(reloadHeld, number(r.Held))
	gauge(configInfo, 1, r.Generation)
	collectLimits(c.Limits(), gauge)
	if c.Certificates != nil {
		for _, s := range c.Certificates() {
			gauge(certificateEnd, float64(s.Expiry.Unix()), s.Certificate)
		}
	}
	gauge(buildInfo, 1, c.Build.Version, c.Build.Revision, c.Build.GoVersion)
}

// collectLimits shows the limits by the names that clients are told. Where rules or their limits have a name in common, it is that
// of the first, as it is for whoever reads the rule files.
func collectLimits(rules *ratelimit.Rules, gauge func(*prometheus.Desc, float64, ...string)) {
	seen := make(map[[3]string]bool)
	for _, rule := range rules.All() {
		for i := range rule.Limits {
			l := &rule.Limits[i]
			name := [3]string{rule.Domain, rule.Name, l.Policy}
			if rule.Unlimited || seen[name] {
				continue
			}
			seen[name] = true
			gauge(ruleLimit, float64(l.Requests), name[:]...)
			gauge(ruleWindow, float64(l.Window)/1e6, name[:]...)
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
