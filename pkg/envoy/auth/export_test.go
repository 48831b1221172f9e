package auth

import (
	"context"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/authz"
)

// Unmarshal returns the request in a message, for tests.
func Unmarshal(b []byte) (*authz.Request, error) {
	var c checkRequest
	err := c.unmarshal(string(b))
	return &c.request, err
}

// Marshal returns the message to Envoy for a decision, for tests.
func Marshal(r *authz.Request, d authz.Decision) []byte {
	a := newAnswer(r, &d)
	return a.appendResponse(nil)
}

// Check returns the answer to a request without messages, for tests. Its error is the error of ctx.
func (s *Server) Check(ctx context.Context, r *authz.Request) (*authv3.CheckResponse, error) {
	a := s.decide(ctx, r)
	m := new(authv3.CheckResponse)
	if err := proto.Unmarshal(a.appendResponse(nil), m); err != nil {
		return nil, err
	}
	return m, ctx.Err()
}
