package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// builder makes rules of what a file says, and reports what makes no sense.
type builder struct {
	*report
	cfg Config
}

// pattern is what a descriptor is matched with; no two siblings may have the same.
type pattern struct{ key, value string }

// siblings are the descriptors of one level, and where each stands.
type siblings map[pattern]string

// nodes makes the nodes of one level. parent is the name of what they stand in, path the keys that lead there.
func (b builder) nodes(list []descriptorKeys, level siblings, parent string, path []string) []ratelimit.Node {
	var nodes []ratelimit.Node
	for _, d := range list {
		name := fullName(parent, d.key.value, d.value.value)
		b.checkPattern(d, level, name)
		nodes = append(nodes, b.node(d, name, append(slices.Clone(path), d.key.value)))
	}
	return nodes
}

// checkPattern reports a descriptor that has no key, or that another one of its level has already.
func (b builder) checkPattern(d descriptorKeys, level siblings, name string) {
	if d.key.value == "" {
		if !d.key.mentioned || d.key.set {
			b.fail(d.at, "descriptor has empty key", "add `key: <the key of an entry of Envoy's descriptor>`")
		}
		return
	}
	p := pattern{d.key.value, d.value.value}
	if first, known := level[p]; known {
		b.fail(d.at, "duplicate descriptor composite key "+quoted(name), "the first is at "+first+": delete one of them, or join what is below them")
		return
	}
	level[p] = b.position(d.at)
}

// node makes the node of one descriptor, with all below it.
func (b builder) node(d descriptorKeys, name string, path []string) ratelimit.Node {
	n := ratelimit.Node{
		Key:            d.key.value,
		Value:          d.value.value,
		Unlimited:      d.rateLimit.value.unlimited.or(false),
		Limits:         b.limits(d, path),
		Shadow:         d.shadowMode.or(false),
		Quota:          d.quotaMode.or(false),
		ShareThreshold: d.shareThreshold.or(false),
		DetailedMetric: d.detailedMetric.or(false),
		ValueToMetric:  d.valueToMetric.or(false),
		Metadata:       d.metadata.or(nil),
		Position:       b.position(d.at),
	}
	if len(n.Metadata) == 0 {
		n.Metadata = nil
	}
	if n.ShareThreshold && !strings.Contains(n.Key+n.Value, "*") {
		b.fail(d.shareThreshold.key, "share_threshold can only be used with wildcard values (containing '*'), but found "+quoted(name),
			"put a `*` into `value`, or delete `share_threshold`")
	}
	if !d.rateLimit.mentioned && !d.limits.mentioned {
		b.warnIdle("shadow_mode", d.shadowMode)
		b.warnIdle("quota_mode", d.quotaMode)
		b.warnIdle("detailed_metric", d.detailedMetric)
	}
	n.Descriptors = b.nodes(d.descriptors.value, siblings{}, name+".", path)
	return n
}

// warnIdle warns of a mode that is set where there is no limit it could hold for.
func (b builder) warnIdle(name string, g given[bool]) {
	if g.or(false) {
		b.warn(g.key, quoted(name)+" has no effect on a descriptor without a rate limit", "descriptors below it do not inherit it: set it beside each `rate_limit`")
	}
}

// limits makes the limits of a descriptor, from `rate_limit` or from `limits`.
func (b builder) limits(d descriptorKeys, path []string) []ratelimit.Limit {
	if d.rateLimit.mentioned && d.limits.mentioned {
		b.fail(d.limits.key, "`limits` beside `rate_limit`", "move what is in `rate_limit` into `limits`, as an element of its own")
		return nil
	}
	if d.rateLimit.set {
		return []ratelimit.Limit{b.limit(d.rateLimit.value, path)}
	}
	if d.limits.set && len(d.limits.value) == 0 {
		b.fail(d.limits.key, "`limits` is empty", "add an element, or delete `limits` to let all pass")
	}
	var limits []ratelimit.Limit
	for _, l := range d.limits.value {
		if l.unlimited.or(false) {
			b.fail(l.unlimited.key, "`unlimited` in `limits`", "other limits would hold all the same: write `rate_limit: {unlimited: true}` instead of `limits`")
			continue
		}
		limits = append(limits, b.limit(l, path))
	}
	if len(limits) > 1 && d.quotaMode.or(false) {
		b.fail(d.quotaMode.key, "`quota_mode` beside several `limits`",
			"quotas deny together only, so with two limits it is not clear when this one is over: keep one limit, or delete `quota_mode`")
	}
	b.checkTogether(d.limits.value, limits)
	return limits
}

// checkTogether reports limits of one descriptor that would count in one bucket, or of which one always replaces the other.
func (b builder) checkTogether(said []limitKeys, limits []ratelimit.Limit) {
	if len(said) != len(limits) {
		return
	}
	for i, l := range limits {
		for j, other := range limits[:i] {
			if l.Window > 0 && l.Window == other.Window && l.Algorithm == other.Algorithm {
				b.fail(said[i].at, fmt.Sprintf("two limits of one descriptor share a bucket: both are %s over %s", l.Algorithm, windowName(l)),
					"the other is at "+b.position(said[j].at)+": only the smaller would count; delete the larger, or change its algorithm or window")
			}
		}
		for _, e := range said[i].replaces.value {
			for j, other := range limits {
				if j != i && other.Name != "" && e.name.value == other.Name {
					b.fail(e.name.at, "replaces should not contain name of same descriptor: "+quoted(other.Name), "both limits match the same requests, so that one would never hold")
				}
			}
		}
	}
}

// windowName is the window of a limit in words: "1 minute", "5 minutes".
func windowName(l ratelimit.Limit) string {
	return counted(int(l.UnitMultiplier), l.Unit.String())
}

// fullName is how envoyproxy/ratelimit names a descriptor in logs and metrics: domain.key_value.key.
func fullName(parent, key, value string) string {
	if value == "" {
		return parent + key
	}
	return parent + key + "_" + value
}
