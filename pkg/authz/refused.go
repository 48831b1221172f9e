package authz

import (
	"errors"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// failure returns what is wrong with the credential of a request, or that there is none; "" for a valid credential and
// for one that cannot be checked at the moment. A missing scope is no failure: it is known who calls.
func failure(err error) reply.Reason {
	switch {
	case err == nil, errors.Is(err, ErrUnavailable):
		return ""
	case errors.Is(err, errAbsent):
		return reply.ReasonAbsent
	case errors.Is(err, ErrExpired):
		return reply.ReasonExpired
	case errors.Is(err, ErrNotYet):
		return reply.ReasonNotYet
	case errors.Is(err, ErrDisabled):
		return reply.ReasonDisabled
	}
	return reply.ReasonInvalid
}

// limitRefused answers a request that was refused for its credential: with 429 if a limit of the policy's Refused is
// exceeded, else as before. The request stays refused also if the limiter cannot decide: an undecided request could
// pass where Envoy has failure_mode_allow. The buckets are not those of the policy's Limits, so an attacker cannot
// lock out other clients at the same address.
func (d *Decision) limitRefused(res *ratelimit.Result) FailureAnswer {
	if res.Err != nil || res.Allowed || res.Answer == ratelimit.FromPolicyDeny {
		return FailureRefused
	}
	d.Limits, d.ToClient = res, nil // without the challenge, which asks for another try
	d.refuse(reply.ReasonRefusedTooOften)
	return FailureLimited
}

// FailureAnswer is what becomes of a request without a valid credential.
type FailureAnswer string

// The answers.
const (
	FailureRefused FailureAnswer = "refused" // with the status of absent or invalid
	FailureLimited FailureAnswer = "limited" // with 429
	FailurePassed  FailureAnswer = "passed"  // with an invalid credential, where none is needed
)
