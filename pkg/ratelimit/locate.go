package ratelimit

import (
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Bucket is what a bucket holds.
type Bucket struct {
	Key string
	// Descriptor is the index of the descriptor in the query.
	Descriptor int
	// Used is the units in use, rounded up, of so many in all.
	Used, Capacity int64
	// Holds are the live holds beside Used at the time At, in µs since 1970. They are nil for none.
	Holds *bucket.Holds
	At    int64
	// Charge is the units that a decision would charge now.
	Charge int64
	// DeniedSince and Denials are those of Limiter.DeniedSince.
	DeniedSince time.Time
	Denials     uint64
}

// bucketOf returns what a Dry request has seen of the bucket of take i.
func bucketOf(t *bucket.Take, o *bucket.Outcome, i, descriptor int) *Bucket {
	d := &o.Decisions[i]
	b := &Bucket{
		Key: strings.Clone(t.Key), Descriptor: descriptor, Capacity: t.Capacity(), Charge: t.Charged(d.Allowed, o.Allowed),
	}
	b.Used, b.Holds, b.At = SeenOf(t, o, i)
	return b
}

// SeenOf returns the units in use before a Dry decision in the bucket of take i, rounded up. It also returns the live
// holds beside them, and the time of both, as Bucket has them.
func SeenOf(t *bucket.Take, o *bucket.Outcome, i int) (used int64, holds *bucket.Holds, at int64) {
	if i < len(o.Seen) {
		at = o.Seen[i].Clock
		s := t.Look(&o.Seen[i].State, at)
		return s.Used(&t.Limit, at), s.Holds, at
	}
	d := &o.Decisions[i] // it was decided by a lease or from the denial cache
	used = t.Capacity() - d.Remaining - t.Charged(d.Allowed, o.Allowed)
	if d.Held != nil {
		holds = &bucket.Holds{Others: bucket.SomeHolds{Units: d.Held.Units, Number: d.Held.Number}}
		used -= d.Held.Units
	}
	return max(0, used), holds, at
}

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

// LocateRule returns two buckets without keys for each limit of the rules with a name: that of requests, and that of
// refused requests. patterns has the pattern of Redis (KEYS) of the keys of each.
func (r *Rules) LocateRule(domain, name string) (found []Located, patterns []string) {
	escape := strings.NewReplacer("*", "\\*", "?", "\\?", "[", "\\[", "]", "\\]", "\\", "\\\\").Replace
	for _, rule := range r.All() {
		for i := range rule.Limits {
			l := &rule.Limits[i]
			if rule.Domain != domain || rule.Name != name || rule.Unlimited {
				continue
			}
			for _, refused := range []bool{false, true} {
				pattern := escape(r.options.KeyPrefix + keyVersion)
				if l.hashTag >= 0 {
					pattern += `\{*\}`
				}
				if refused {
					pattern += string(refusedMark)
				}
				found = append(found, Located{
					Rule: rule, Limit: l, Refused: refused, Take: bucket.Take{Rule: l.rule, Limit: l.Limit, Hold: l.Hold},
				})
				patterns = append(patterns, pattern+escape(l.identity)+"*")
			}
		}
	}
	return found, patterns
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
	rule, _ := find(tree, entries) // its buckets do not depend on an entry for a hold
	if rule == nil || rule.Unlimited {
		return nil
	}
	add := func(l *RuleLimit, refused, replaced bool) {
		found = append(found, Located{Rule: rule, Limit: l, Refused: refused, Replaced: replaced, Take: bucket.Take{
			Key:  string(rule.appendKey(nil, r.options.KeyPrefix, l, entries, refused)),
			Rule: l.rule, Limit: l.Limit, Hold: l.Hold,
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
