package auth

import "github.com/extauthz/extauthz/pkg/authz"

// Unmarshal returns the request in a message, for tests. It is read into memory that had a request before.
func Unmarshal(b []byte) (*authz.Request, error) {
	var m Message
	_ = m.Unmarshal(string(b) + usedBefore)
	m.Reset()
	err := m.Unmarshal(string(b))
	return &m.Request, err
}

// usedBefore is a CheckRequest with an attribute of each kind.
const usedBefore = "\x0a\x36" +
	"\x0a\x08\x22\x06before" + // source.principal
	"\x22\x10\x12\x0e\x1a\x0c\x0a\x06before\x12\x02no" + // request.http.headers
	"\x52\x0c\x0a\x06before\x12\x02no" + // context_extensions
	"\x5a\x0a\x0a\x08\x0a\x06before" // metadata_context.filter_metadata

// Marshal returns the message to Envoy for a decision, for tests.
func Marshal(r *authz.Request, d authz.Decision) []byte {
	var a Answer
	a.Decide(r, &d)
	return a.Append(nil)
}
