package rls

import (
	"context"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// FromProto is for tests.
var FromProto = fromProto

// Unmarshal is for tests: the query in a message. The error is also that of a bound that the message exceeds.
func Unmarshal(b []byte) (ratelimit.Query, error) {
	var r request
	if err := r.UnmarshalWire(string(b)); err != nil {
		return r.query, err
	}
	return r.query, r.refused
}

// Answer is for tests: the answer to a message, without a connection.
func (s *Server) Answer(ctx context.Context, b []byte) (*ratelimitv3.RateLimitResponse, error) {
	var r request
	if err := r.UnmarshalWire(string(b)); err != nil {
		return nil, err
	}
	return s.answer(ctx, &r)
}
