package authz

import (
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

// EachReason calls f for every reason and how many decisions had it.
func (a *Authorizer) EachReason(f func(r reply.Reason, n uint64)) {
	for reason, n := range a.decisions {
		f(reason, n.Load())
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
