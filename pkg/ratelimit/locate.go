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
	// Take asks the bucket for nothing.
	Take bucket.Take
}

// Locate returns the buckets of the rule that a descriptor matches: for each limit that of requests, and that of
// refused requests. It returns none if no rule matches (see Miss), or if the rule is unlimited. Limits of
// credentials with another window or algorithm have buckets of their own, which are not among them.
func (r *Rules) Locate(domain string, entries []descriptors.Entry) (found []Located) {
	tree := r.domains[domain]
	if tree == nil {
		return nil
	}
	node := tree.Find(entries)
	if node == nil || node.Value.rule == nil || node.Value.rule.Unlimited {
		return nil
	}
	rule := node.Value.rule
	for i := range rule.Limits {
		l := &rule.Limits[i]
		for _, refused := range []bool{false, true} {
			found = append(found, Located{Rule: rule, Limit: l, Refused: refused, Take: bucket.Take{
				Key:  string(rule.appendKey(nil, r.options.KeyPrefix, l, entries, refused)),
				Rule: l.rule, Limit: l.Limit,
			}})
		}
	}
	return found
}
