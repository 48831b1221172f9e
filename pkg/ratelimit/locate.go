package ratelimit

import (
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Located is a bucket of a rule.
type Located struct {
	Rule  *Rule
	Limit *RuleLimit
	// Refused means that the bucket counts refused requests (Query.Refused).
	Refused bool
	// Replaced means that the limit of a credential is active, and the bucket is that of the limit in its place.
	Replaced bool
	// Take asks the bucket for nothing.
	Take bucket.Take
}

// Locate returns the buckets of the rule that a descriptor matches: for each limit that of requests, and that of
// refused requests. It returns none if no rule matches (see Miss), or if the rule is unlimited. own is the limit of the
// credential that the descriptor names, nil for none. It is active where the rule allows it, and has a bucket of its
// own if its window or algorithm differs.
func (r *Rules) Locate(domain string, entries []descriptors.Entry, own *LimitSpec) (found []Located) {
	tree := r.domains[domain]
	if tree == nil {
		return nil
	}
	node := tree.Find(entries)
	if node == nil || node.Value.rule == nil || node.Value.rule.Unlimited {
		return nil
	}
	rule := node.Value.rule
	add := func(l *RuleLimit, refused, replaced bool) {
		found = append(found, Located{Rule: rule, Limit: l, Refused: refused, Replaced: replaced, Take: bucket.Take{
			Key:  string(rule.appendKey(nil, r.options.KeyPrefix, l, entries, refused)),
			Rule: l.rule, Limit: l.Limit,
		}})
	}
	for i := range rule.Limits {
		l, active := &rule.Limits[i], &rule.Limits[i]
		if l.Override != nil && own != nil {
			active = rule.bring(l, *own)
		}
		add(active, false, false)
		if active.identity != l.identity {
			add(l, false, true)
		}
		add(l, true, false)
	}
	return found
}
