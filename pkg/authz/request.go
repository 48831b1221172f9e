package authz

import (
	"strings"
	"time"
)

// Request is a request as a transport receives it. The client chooses all but Principal, Source and Extensions.
type Request struct {
	// HTTP is false for a connection of a TCP listener, which has only Source and Principal.
	HTTP bool
	// Method, Host (with port) and Path (as received, with the query) are those of the request line.
	Method, Host, Path string
	Headers            Headers
	// MaxHold is how long the answer can be held (max_delay). A request that would be held longer is denied.
	MaxHold time.Duration
	// Source is the address of the peer, without port. Principal is the identity in its certificate, verified by Envoy.
	Source, Principal string
	// Extensions are the context_extensions of the route.
	Extensions map[string]string
	// Metadata is the metadata of Envoy's other filters (metadata_context), by namespace.
	Metadata map[string]map[string]any
}

// GRPC reports whether the client is a gRPC client, which reads grpc-status and not the body. gRPC-Web does not count.
func (r *Request) GRPC() bool {
	contentType, _ := r.Headers.Get("content-type")
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// Headers are the values of each header, by name in lower case. Envoy may have joined several with commas.
type Headers map[string][]string

// Get returns the values of a header joined by commas; ok is false without the header.
func (h Headers) Get(name string) (value string, ok bool) {
	values, ok := h[name]
	if len(values) == 1 {
		return values[0], true
	}
	return strings.Join(values, ","), ok
}
