package authz

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/reply"
)

// counters count by a key. They are made with all keys, so that counting needs no lock.
type counters[K comparable] map[K]*atomic.Uint64

func newCounters[K comparable](keys []K) counters[K] {
	c := make(counters[K], len(keys))
	for _, key := range keys {
		c[key] = new(atomic.Uint64)
	}
	return c
}

func (c counters[K]) count(key K) {
	if n := c[key]; n != nil {
		n.Add(1)
	}
}

// FailureAnswer is the answer to a request without a valid credential.
type FailureAnswer string

// The answers.
const (
	FailureRefused FailureAnswer = "refused" // with the status of absent or invalid
	FailureLimited FailureAnswer = "limited" // with 429
	FailurePassed  FailureAnswer = "passed"  // it carried an invalid credential but needed none
)

// failureKind is why the credential of a request is not valid, and how the request was answered.
type failureKind struct {
	reason reply.Reason
	answer FailureAnswer
}

func failureKinds() (kinds []failureKind) {
	for _, reason := range [...]reply.Reason{
		reply.ReasonAbsent, reply.ReasonInvalid, reply.ReasonExpired, reply.ReasonNotYet, reply.ReasonDisabled,
	} {
		for _, answer := range [...]FailureAnswer{FailureRefused, FailureLimited, FailurePassed} {
			kinds = append(kinds, failureKind{reason, answer})
		}
	}
	return kinds
}

// decisionsOf returns the counters of a domain with a policy. Domains that are not from files share those of "".
func (a *Authorizer) decisionsOf(domain string) counters[reply.Reason] {
	if c, ok := (*a.decisions.Load())[domain]; ok {
		return c
	}
	a.adding.Lock()
	defer a.adding.Unlock()
	all := maps.Clone(*a.decisions.Load())
	if all[domain] == nil {
		all[domain] = newCounters(reply.Reasons())
		a.decisions.Store(&all)
	}
	return all[domain]
}

// EachDecision calls f with the number of decisions for each domain with a policy and reason; "" is no policy.
func (a *Authorizer) EachDecision(f func(domain string, r reply.Reason, n uint64)) {
	domains := append(slices.Collect(maps.Keys(a.cfg.Policies().byDomain)), "")
	for _, domain := range domains {
		for reason, n := range a.decisionsOf(domain) {
			f(domain, reason, n.Load())
		}
	}
}

// EachFailure calls f with the number of requests without a valid credential, for each reason and answer.
func (a *Authorizer) EachFailure(f func(reason reply.Reason, answer FailureAnswer, n uint64)) {
	for key, n := range a.failures {
		f(key.reason, key.answer, n.Load())
	}
}

// UntrustedHops returns how many requests OnUntrustedHops was called for.
func (a *Authorizer) UntrustedHops() uint64 { return a.untrustedHops.Load() }
