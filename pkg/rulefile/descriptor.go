package rulefile

import (
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// builder makes rules of what a file says, and reports what makes no sense.
type builder struct{ *report }

// nodes makes the nodes of one level.
func (b builder) nodes(list []descriptorKeys) []ratelimit.Node {
	var nodes []ratelimit.Node
	for _, d := range list {
		n := ratelimit.Node{
			Key:            d.key.value,
			Value:          d.value.value,
			Shadow:         d.shadowMode.or(false),
			Quota:          d.quotaMode.or(false),
			ShareThreshold: d.shareThreshold.or(false),
			DetailedMetric: d.detailedMetric.or(false),
			ValueToMetric:  d.valueToMetric.or(false),
			Descriptors:    b.nodes(d.descriptors.value),
			Position:       b.position(d.at),
		}
		if len(d.metadata.value) > 0 {
			n.Metadata = d.metadata.value
		}
		if d.rateLimit.set {
			l := b.limit(d.rateLimit.value)
			n.RateLimit = &l
		}
		if d.limits.set {
			n.Limits = make([]ratelimit.Limit, 0, len(d.limits.value))
		}
		for _, l := range d.limits.value {
			n.Limits = append(n.Limits, b.limit(l))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (b builder) limit(l limitKeys) ratelimit.Limit {
	limit := ratelimit.Limit{
		Unit: l.unit.value, Multiplier: l.unitMultiplier.value, Requests: l.requestsPerUnit.pointer(),
		Algorithm: l.algorithm.value, Burst: l.burst.value, Unlimited: l.unlimited.value, Name: l.name.value,
		CountDenied: l.countDenied.pointer(), OnStoreError: l.onStoreError.value, HashTag: l.hashTag.value,
		Override: l.override.value, OverrideMax: l.overrideMax.value, MaxDelay: l.maxDelay.value,
		Position: b.position(l.at),
	}
	for _, e := range l.replaces.value {
		limit.Replaces = append(limit.Replaces, ratelimit.Replaced{Name: e.name.value})
	}
	if p := l.problem; p.set {
		limit.Problem = &ratelimit.Problem{Type: p.value.kind.value, Title: p.value.title.value, Detail: p.value.detail.value}
	}
	return limit
}

// pointer is what the file gives, nil for nothing.
func (g given[V]) pointer() *V {
	if !g.set {
		return nil
	}
	return &g.value
}
