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
	err := c.UnmarshalWire(string(b))
	return &c.request, err
}

// Marshal is for tests: the message that Envoy is sent for a decision.
func Marshal(r *authz.Request, d authz.Decision) []byte {
	c := checkResponse{newAnswer(r, &d)}
	return c.AppendWire(nil)
}

// Check is for tests: the answer to a request, without a connection.
func (s *Server) Check(ctx context.Context, r *authz.Request) (*authv3.CheckResponse, error) {
	c, err := s.check(ctx, r)
	if err != nil {
		return nil, err
	}
	m := new(authv3.CheckResponse)
	return m, proto.Unmarshal(c.AppendWire(nil), m)
}

// MaxDepth is for tests.
const MaxDepth = maxDepth
