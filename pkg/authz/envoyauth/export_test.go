package envoyauth

import (
	"context"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/extauthz/extauthz/pkg/authz"
)

// Unmarshal is for tests: the request in a message.
func Unmarshal(b []byte) (*authz.Request, error) {
	var c checkRequest
	err := c.UnmarshalWire(string(b))
	return &c.request, err
}

// Response is for tests: what Envoy is sent for a decision.
func Response(r *authz.Request, d authz.Decision) *authv3.CheckResponse {
	a := newAnswer(r, &d)
	return response(&a)
}

// Check is for tests: the answer to a request, without a connection.
func (s *Server) Check(ctx context.Context, r *authz.Request) (*authv3.CheckResponse, error) {
	return s.check(ctx, r)
}

// MaxDepth is for tests.
const MaxDepth = maxDepth
