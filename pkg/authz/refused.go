package authz

import (
	"errors"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// causeOf returns the cause of a credential.Error, "" for another error.
func causeOf(err error) string {
	if e, ok := errors.AsType[*credential.Error](err); ok {
		return e.Cause
	}
	return ""
}

// failure returns why a request has no valid credential; "" if it has one, or has one that cannot be checked at the
// moment. A missing scope is not a failure, because the client is known.
func failure(err error) reply.Reason {
	switch {
	case err == nil, errors.Is(err, credential.ErrUnavailable):
		return ""
	case errors.Is(err, errAbsent):
		return reply.ReasonAbsent
	case errors.Is(err, credential.ErrExpired):
		return reply.ReasonExpired
	case errors.Is(err, credential.ErrNotYet):
		return reply.ReasonNotYet
	case errors.Is(err, credential.ErrDisabled):
		return reply.ReasonDisabled
	}
	return reply.ReasonInvalid
}

// limitRefused answers a request that was refused for its credential: with 429 if it exceeds a limit of Policy.Refused,
// else as before. If the limiter cannot decide, the request stays refused: Envoy with failure_mode_allow could let an
// undecided request pass. Policy.Limits has other buckets, so an attacker cannot lock out other clients at the same
// address.
func (d *Decision) limitRefused(res *ratelimit.Result) FailureAnswer {
	if res.Err != nil || res.Allowed || res.Decider == ratelimit.FromPolicyDeny {
		return FailureRefused
	}
	d.Limits, d.ToClient = res, d.ToClient[:0] // without the challenge, which invites another try
	d.refuse(reply.ReasonRefusedTooOften)
	return FailureLimited
}

// FailureAnswer is the answer to a request without a valid credential.
type FailureAnswer string

// The answers.
const (
	FailureRefused FailureAnswer = "refused" // with the status of absent or invalid
	FailureLimited FailureAnswer = "limited" // with 429
	FailurePassed  FailureAnswer = "passed"  // it carried an invalid credential but needed none
)
