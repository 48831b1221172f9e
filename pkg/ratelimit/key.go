package ratelimit

import (
	"hash/fnv"
	"strconv"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// identity distinguishes the buckets of a limit from those of all others: domain, path, algorithm and window, or unit
// and time zone. It leaves out the numbers and the name, so that a change of them keeps the counts. A limit in shadow
// or with Enforce beside others may have their algorithm and window.
func identity(domain string, path []*Node, l *RuleLimit) []byte {
	id := descriptors.AppendField(nil, domain)
	for _, n := range path {
		id = descriptors.AppendField(id, n.Key)
		switch {
		case n.Network != "":
			id = descriptors.AppendField(append(id, '@'), n.Network)
			continue
		case n.Value == "":
			id = append(id, '*')
			continue
		}
		id = descriptors.AppendField(append(id, '='), n.Value)
	}
	mark := byte('/')
	if l.apart {
		mark = '~'
	}
	id = appendAlgorithm(append(id, mark), l.Limit)
	if len(id) > maxIdentity {
		return descriptors.AppendField([]byte{'h'}, string(id)) // a hash; other identities begin with a field
	}
	return append(id, ';')
}

// requestLimitsOf begins the identity of each limit that a request of the domain brings. All are one rule to a store:
// with a rule for each window, which requests choose, many windows would displace the buckets of other rules.
func requestLimitsOf(domain string) []byte { return descriptors.AppendField([]byte{'o'}, domain) }

// requestLimitIdentity is the identity of a limit that the request brings. It belongs to the entries, not to a rule.
func requestLimitIdentity(domain string, l bucket.Limit) []byte {
	return append(appendAlgorithm(requestLimitsOf(domain), l), ';')
}

func hashOf(id []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(id) // a hash never fails
	return h.Sum64()
}

// maxIdentity bounds the rule's part of each key. It is more than descriptors.AppendField leaves unhashed.
const maxIdentity = 96

func appendAlgorithm(key []byte, l bucket.Limit) []byte {
	if key = append(key, l.Algorithm.Letter()); l.Calendar != nil {
		return append(key, l.Calendar.String()...)
	}
	return strconv.AppendInt(key, l.Window, 10)
}

// keyVersion begins all keys after the configured prefix, so that a Redis ACL can allow only them.
const keyVersion = "rl:"

// refusedMark precedes the identity in the keys of a Query with Refused. No identity begins with it.
const refusedMark = 'r'

// appendKey appends the name of the bucket of this limit for these entries, which the rule matches. A limit that the
// request brings has no rule: r is nil and all entries count. refused is Query.Refused.
func (r *Rule) appendKey(key []byte, prefix string, l *RuleLimit, entries []descriptors.Entry, refused bool) []byte {
	key = append(append(key, prefix...), keyVersion...)
	if l.hashTag >= 0 {
		key = descriptors.AppendHashTag(key, entries[l.hashTag].Value)
	}
	if refused {
		key = append(key, refusedMark)
	}
	key = append(key, l.identity...)
	if r == nil {
		for _, e := range entries {
			key = descriptors.AppendField(descriptors.AppendField(key, e.Key), e.Value)
		}
		return key
	}
	for _, v := range r.buckets {
		if v.key {
			key = descriptors.AppendField(key, entries[v.entry].Key)
		}
		if v.value {
			key = descriptors.AppendField(key, entries[v.entry].Value)
		}
	}
	return key
}
