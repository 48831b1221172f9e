// Package ratelimit decides requests: descriptors are matched with rules, rules name buckets, a store takes from the buckets,
// and the decisions become one result. It knows neither Envoy's protos nor Redis.
package ratelimit

import (
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Domain is one rule file's worth of rules: what the parser of a rule source hands over, already checked.
type Domain struct {
	Name        string
	Descriptors []Node
}

// Node is one element of `descriptors:` in a rule file. A node without limits that a descriptor ends at lets it pass.
type Node struct {
	// Key and Value are what an entry is matched with: `*` stands for any number of characters, an empty Value for any value.
	Key, Value string
	// Limits are `rate_limit:` or `limits:`; all of them apply. Empty for none.
	Limits []Limit
	// Unlimited says that `rate_limit:` was `unlimited: true`; Limits is then one element with only Name and Replaces set.
	Unlimited bool
	// Shadow (shadow_mode) decides and counts, but does not enforce.
	Shadow bool
	// Quota (quota_mode) denies only together with all other quotas of a request.
	Quota bool
	// ShareThreshold makes all values that a wildcard matches share one bucket.
	ShareThreshold bool
	// DetailedMetric and ValueToMetric put values of requests into the rule's name in metrics.
	DetailedMetric, ValueToMetric bool
	// Metadata is copied to the dynamic metadata of an answer: only maps with string keys, lists, strings, bools, nil,
	// int64, uint64 and float64.
	Metadata map[string]any
	// Descriptors are the nodes that the next entry is matched with.
	Descriptors []Node
	// Position is where the node stands, "file:line", for people.
	Position string
}

// Limit is one limit of a rule.
type Limit struct {
	bucket.Limit
	// Chosen is the algorithm as the rule names it: Limit.Algorithm, or bucket.SlidingWindow. A credential's own limit without an
	// algorithm has this one.
	Chosen bucket.Algorithm
	// Name is told to Envoy (current_limit.name) and is what Replaces of other rules refers to.
	Name string
	// Replaces are the names of limits that do not apply to a request to which this one does.
	Replaces []string
	// Unit and UnitMultiplier (≥ 1) make up the window, as it is told to Envoy.
	Unit           descriptors.Unit
	UnitMultiplier uint32
	// CountDenied says which denied hits are charged.
	CountDenied CountDenied
	// OnStoreError answers for the store when that can not decide.
	OnStoreError StoreErrorPolicy
	// HashTag is the key of the entry whose value chooses the slot of a Redis Cluster, "" for none.
	HashTag string
	// OverrideMax is the most requests in this limit's window that a credential's own limit may allow in its place (override:
	// allowed, override_max); 0 when none may take its place.
	OverrideMax int64
	// MaxDelay is how early a request may be, in µs: it is then held until its time, and denied when it is earlier still
	// (max_delay; leaky_bucket). 0 means that a bucket takes bursts at once. A multiple of the time of one unit.
	MaxDelay int64
	// Problem is what the body of a denial by this limit says; nil for the usual.
	Problem *Problem
}

// Problem is the template of a problem detail (RFC 9457). In Title and Detail {retry_after} stands for the seconds until the
// request would pass ("never" when it never would), {limit} for the requests a window, {window} for its seconds and {policy}
// for the name of the limit. What is "" is as usual.
type Problem struct{ Type, Title, Detail string }

// CountDenied says which denied hits are charged (count_denied).
type CountDenied uint8

// The choices of count_denied. When it is not set, a denied request pays what it states explicitly: hits_addend of the
// descriptor may be the settlement of costs known afterwards, which must not be lost; the implicit single hit is not charged.
const (
	CountExplicit CountDenied = iota
	CountAll
	CountNone
)

// StoreErrorPolicy answers for a store that can not decide (on_store_error, STORE_ERROR_POLICY).
type StoreErrorPolicy uint8

// The policies, in the order in which they win when the limits of one request differ.
const (
	// Deny denies every request.
	Deny StoreErrorPolicy = iota + 1
	// Local decides in this process' memory, by the full limit.
	Local
	// Allow lets every request pass.
	Allow
)

// String returns the name used in rule files.
func (p StoreErrorPolicy) String() string {
	switch p {
	case Deny:
		return "deny"
	case Local:
		return "local"
	case Allow:
		return "allow"
	}
	return "unset"
}

// ParseStoreErrorPolicy returns the policy with this name; ok is false when there is none.
func ParseStoreErrorPolicy(name string) (p StoreErrorPolicy, ok bool) {
	for _, p := range []StoreErrorPolicy{Deny, Local, Allow} {
		if name == p.String() {
			return p, true
		}
	}
	return 0, false
}
