package auth

import (
	"context"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/authz"
)

// Unmarshal returns the request in a message, for tests. It is read into memory that had a request before.
func Unmarshal(b []byte) (*authz.Request, error) {
	var c checkRequest
	_ = c.unmarshal(string(b) + usedBefore)
	c.reset()
	err := c.unmarshal(string(b))
	return &c.request, err
}

// usedBefore is a CheckRequest with an attribute of each kind.
const usedBefore = "\x0a\x36" +
	"\x0a\x08\x22\x06before" + // source.principal
	"\x22\x10\x12\x0e\x1a\x0c\x0a\x06before\x12\x02no" + // request.http.headers
	"\x52\x0c\x0a\x06before\x12\x02no" + // context_extensions
	"\x5a\x0a\x0a\x08\x0a\x06before" // metadata_context.filter_metadata

// Marshal returns the message to Envoy for a decision, for tests.
func Marshal(r *authz.Request, d authz.Decision) []byte {
	var a answer
	a.decide(r, &d)
	return a.appendResponse(nil)
}

// Check returns the answer to a request without messages, for tests. Its error is the error of ctx.
func (s *Server) Check(ctx context.Context, r *authz.Request) (*authv3.CheckResponse, error) {
	c := new(check)
	s.decide(ctx, c, r)
	m := new(authv3.CheckResponse)
	if err := proto.Unmarshal(c.answer.appendResponse(nil), m); err != nil {
		return nil, err
	}
	return m, ctx.Err()
}
