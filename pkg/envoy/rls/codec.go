package rls

import (
	"errors"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

// ServiceName is the full name of the gRPC service, Method the full name of its only method.
const (
	ServiceName = "envoy.service.ratelimit.v3.RateLimitService"
	Method      = "/" + ServiceName + "/ShouldRateLimit"
)

// Codec has the settings of responses. The zero value sends no headers and no body. It is safe for concurrent use.
type Codec struct {
	// Headers are the headers to send to the client.
	Headers reply.Headers
	// Upstream is Triple, or empty for no headers for the upstream (LIMIT_REQUEST_HEADERS_ENABLED).
	Upstream reply.Headers
	// ProblemBody sends a problem+json body with a denial.
	ProblemBody bool
	// DynamicMetadata sends the decision and its rule to Envoy (RESPONSE_DYNAMIC_METADATA).
	DynamicMetadata bool
	// Strict sends what envoyproxy/ratelimit sends (COMPATIBILITY=strict). The limiter must be strict, too.
	Strict bool
}

// Undecided returns the error of a call whose result has an error, nil for any other result. InvalidArgument means a
// query that only a broken configuration can send. Unavailable means that there have been no rules yet, or that the
// store of a strict limiter cannot decide.
func Undecided(res *ratelimit.Result) error {
	_, mistake := errors.AsType[ratelimit.QueryError](res.Err)
	switch {
	case mistake:
		return &wire.Error{Code: wire.InvalidArgument, Reason: res.Err.Error()}
	case res.Err != nil:
		return &wire.Error{Code: wire.Unavailable, Reason: res.Err.Error()}
	}
	return nil
}
