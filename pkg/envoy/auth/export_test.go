package auth

import (
	"context"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/authz"
)

// Unmarshal is for tests: the request in a message.
func Unmarshal(b []byte) (*authz.Request, error) {
	var c checkRequest
	err := c.unmarshal(string(b))
	return &c.request, err
}

// Marshal is for tests: the message that Envoy is sent for a decision.
func Marshal(r *authz.Request, d authz.Decision) []byte {
	a := newAnswer(r, &d)
	return a.appendResponse(nil)
}

// Check is for tests: the answer to a request, without a message. Its error is that of ctx.
func (s *Server) Check(ctx context.Context, r *authz.Request) (*authv3.CheckResponse, error) {
	a := s.decide(ctx, r)
	m := new(authv3.CheckResponse)
	if err := proto.Unmarshal(a.appendResponse(nil), m); err != nil {
		return nil, err
	}
	return m, ctx.Err()
}
