package authz

import (
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/reply"
)

// reasons lists all reasons, so that counting needs no lock.
var reasons = [...]reply.Reason{
	reply.ReasonAllowed, reply.ReasonOpen, reply.ReasonAnonymous, reply.ReasonAbsent, reply.ReasonInvalid, reply.ReasonExpired, reply.ReasonNotYet, reply.ReasonDisabled,
	reply.ReasonScope, reply.ReasonDenied, reply.ReasonHost, reply.ReasonPath, reply.ReasonOverLimit, reply.ReasonRefusedTooOften, reply.ReasonUndecided, reply.ReasonNoPolicy,
}

// counters count decisions by reason.
type counters [len(reasons)]atomic.Uint64

func (c *counters) count(r reply.Reason) {
	for i := range reasons {
		if reasons[i] == r {
			c[i].Add(1)
		}
	}
}

// EachReason calls f for every reason and how many decisions had it.
func (a *Authorizer) EachReason(f func(r reply.Reason, n uint64)) {
	for i := range reasons {
		f(reasons[i], a.counters[i].Load())
	}
}

// UntrustedHops returns how many requests had an x-forwarded-for that does not end with the address of the peer, where the policy has
// trusted_hops.
func (a *Authorizer) UntrustedHops() uint64 { return a.untrustedHops.Load() }
