package ratelimit

import (
	"math"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// A strict limiter (COMPATIBILITY=strict) decides as envoyproxy/ratelimit does. The store only counts the hits of fixed
// windows. All hits count, also those of a denied request. The limiter compares each descriptor with its own limit, in
// the order of the request. Of two descriptors with the same bucket, the first can pass and the second be denied.

// countsOnly reports whether the store only counts for this query. It does unless a limit has an algorithm, a
// count_denied or holds that envoyproxy/ratelimit does not know. In that case the store decides the query, all or
// nothing.
func (p *Plan) countsOnly() bool {
	if !p.limiter.cfg.Strict {
		return false
	}
	for i := range p.limits {
		l := p.limits[i].limit
		if !l.Algorithm.Resets() || l.Hold != nil || l.CountDenied != nil && !*l.CountDenied {
			return false
		}
	}
	return true
}

// With StopWhenOver, the limiter first reads the counts of such a query. Of a request that exceeds a limit, the other
// limits are not charged. As at envoyproxy/ratelimit, each descriptor is compared by itself, rules in shadow mode
// count, too, and requests between the two calls of the store are not seen. If the store does not answer the first
// call, it decides by the second.

// share lets a limit of the request count in the bucket of a rule for the same entries, if that has a limit with the
// same window. In envoyproxy/ratelimit the two have one key, unless values of the rule share a bucket.
func (a *appliedLimit) share(r *Rule) {
	if slices.ContainsFunc(r.path, func(n *Node) bool { return n.ShareThreshold }) {
		return
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		if !l.apart && l.Hold == nil && l.Algorithm == a.limit.Algorithm &&
			l.Window == a.limit.Window && l.Calendar == a.limit.Calendar {
			a.keyed, a.limit.identity, a.limit.rule, a.limit.hashTag = r, l.identity, l.rule, l.hashTag
			return
		}
	}
}

// leaveOutOthers lets all takes charge nothing, because the local cache denies another limit of the request.
func (p *Plan) leaveOutOthers(takes []bucket.Take) {
	for i := range takes {
		takes[i].Cost = 0
	}
	for i := range p.limits {
		p.limits[i].uncharged = p.limits[i].cached == 0
	}
}

// leaveOut marks the limits that are not charged. The outcome is that of takes that charged nothing.
func (p *Plan) leaveOut(o *bucket.Outcome) {
	if o.Err != nil {
		return
	}
	isOver, over := make([]bool, len(p.limits)), 0
	for i, a := range p.limits {
		left := a.limit.Requests - (bucket.MaxWindowRequests - o.Decisions[a.take].Remaining)
		var own bucket.Take
		p.cost(&own, &p.query.Descriptors[a.descriptor], a.limit)
		if own.Refund == 0 && (left < 0 || own.Cost > uint64(left)) {
			isOver[i] = true
			if !a.limit.beside {
				over++
			}
		}
	}
	for i := range p.limits {
		p.limits[i].uncharged = over > 0 && !isOver[i] && !p.limits[i].limit.beside
	}
}

// count is what a bucket holds before a request, and after its descriptors so far.
type count struct{ before, now int64 }

// counts returns the counts of the buckets before the request, but after its refunds.
func (p *Plan) counts(takes []bucket.Take, res *Result) []count {
	list := make([]count, len(takes))
	for i, a := range p.limits {
		if a.cached > 0 {
			continue
		}
		d := &res.Limits[i].Decision
		after := bucket.MaxWindowRequests - d.Remaining
		if !d.Allowed {
			after++ // more than any limit; the store does not report how much more
		}
		before := max(0, after-int64(takes[a.take].Cost))
		list[a.take] = count{before, before}
	}
	return list
}

// compare decides the limits of a query for which the store has only counted, and with them the query.
func (p *Plan) compare(takes []bucket.Take, res *Result) {
	counts := p.counts(takes, res)
	enforced, quota, quotas := uint64(0), uint64(math.MaxUint64), false // waits; bucket.Never is the longest
	for i := range p.limits {
		a, applied := &p.limits[i], &res.Limits[i]
		d := &applied.Decision
		if a.cached > 0 {
			applied.Cost = p.hits(&p.query.Descriptors[a.descriptor])
			*d = bucket.Decision{RetryAfter: a.cached, ResetAfter: a.cached, NextIn: a.cached}
		} else {
			p.compareOne(a, &takes[a.take], &counts[a.take], applied)
		}
		switch wait := uint64(d.RetryAfter); p.role(p.matches[a.descriptor].rule, a.limit) {
		case bucket.Enforce:
			enforced = max(enforced, wait)
		case bucket.Quota:
			quota, quotas = min(quota, wait), true
		case bucket.Shadow:
		}
	}
	if !quotas || !p.quotasCanDeny() {
		quota = 0
	}
	res.RetryAfter = int64(max(enforced, quota))
	res.Allowed = res.RetryAfter == 0
}

// compareOne decides a limit by the count of its bucket. It tells the local cache of a limit that is exceeded.
func (p *Plan) compareOne(a *appliedLimit, t *bucket.Take, c *count, applied *Applied) {
	var own bucket.Take
	p.cost(&own, &p.query.Descriptors[a.descriptor], a.limit)
	applied.left = max(0, a.limit.Requests-c.now)
	if a.uncharged {
		applied.Cost = own.Cost
	} else {
		applied.Cost = min(own.Cost, t.Cost)
		c.now += int64(applied.Cost)
	}
	d := &applied.Decision
	d.Allowed = c.now <= a.limit.Requests || own.Refund > 0
	d.Remaining = max(0, a.limit.Requests-c.now)
	switch {
	case d.Allowed:
		d.RetryAfter = 0
	case c.now-c.before > a.limit.Requests:
		d.RetryAfter = bucket.Never
	default:
		d.RetryAfter = d.ResetAfter
	}
	switch {
	case p.limiter.dry:
	case own.Refund > 0:
		p.limiter.cache.note(t.Key, 0)
	case !d.Allowed:
		p.limiter.cache.note(t.Key, p.began+d.ResetAfter)
	}
}

// KeepsMetadata reports whether envoyproxy/ratelimit returns the metadata of the rule for these entries. It loses them
// where it names a statistic after the request: with detailed_metric, value_to_metric, or a wildcard in a key.
func (r *Rule) KeepsMetadata(entries []descriptors.Entry) bool {
	if r.Node.DetailedMetric {
		return len(r.Node.Descriptors) > 0
	}
	for i, n := range r.path {
		if strings.Contains(n.Key, "*") || n.ValueToMetric && !n.ShareThreshold && entries[i].Value != n.Value {
			return false
		}
	}
	return true
}
