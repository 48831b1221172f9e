package authz

import (
	"net/netip"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/reply"
)

// Request is a request as a transport receives it. The client chooses all but Principal, Source and Extensions. Its
// texts may be parts of a message whose memory is used again after the answer. Keep only clones of them.
type Request struct {
	// HTTP is false for a connection of a TCP listener, which has only Source and Principal.
	HTTP bool
	// Method, Host (with port) and Path (as received, with the query) are those of the request line.
	Method, Host, Path string
	// Headers are added by AddHeader.
	Headers Headers
	// MaxHold is how long the answer can be held (max_delay). A request that would be held longer is denied.
	MaxHold time.Duration
	// Source is the address of the peer, without port. Principal is the identity in its certificate, verified by Envoy.
	Source, Principal string
	// Extensions are the context_extensions of the route, which AddExtension adds.
	Extensions map[string]string
	// Metadata is the metadata of Envoy's other filters (metadata_context); nil without any.
	Metadata RequestMetadata
	// TooLarge means that headers or extensions are missing, because there are too many. Such a request is refused.
	TooLarge bool
	// Quota is when the request reads the quota of its client. Default: QuotaByPath.
	Quota QuotaReading
}

// MostHeaders and MostExtensions bound a request. Envoy passes on 100 headers, unless max_headers_count is set.
const (
	MostHeaders    = 1024
	MostExtensions = 1024
)

// AddHeader adds a header, with its name in lower case. All values of a name are kept, so that a repeated credential is
// detected. It leaves out a header that exceeds MostHeaders, before it takes memory for it.
func (r *Request) AddHeader(name, value string) {
	if len(r.Headers) == MostHeaders {
		r.TooLarge = true
		return
	}
	r.Headers = append(r.Headers, reply.Header{Name: name, Value: value})
}

// AddExtension sets an extension. It leaves out one that exceeds MostExtensions, before it takes memory for it.
func (r *Request) AddExtension(key, value string) {
	if _, known := r.Extensions[key]; !known && len(r.Extensions) == MostExtensions {
		r.TooLarge = true
		return
	}
	if r.Extensions == nil {
		r.Extensions = make(map[string]string)
	}
	r.Extensions[key] = value
}

// RequestMetadata is metadata that is read only if a policy uses it, because callers choose its size.
type RequestMetadata interface {
	// At returns the text, number or bool at a path of a namespace and names below it, nil for anything else.
	At(path []string) any
	// Fits reports whether the metadata can be read, and has not too many values. Call it before At.
	Fits() bool
}

// GRPC reports whether the client is a gRPC client, which reads grpc-status and not the body. gRPC-Web does not count.
func (r *Request) GRPC() bool {
	contentType, _ := r.Headers.Get("content-type")
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

const forwardedFor = "x-forwarded-for"

// withoutPeer reports whether x-forwarded-for does not end with the address of the peer. Then Envoy has not appended it
// (use_remote_address: false, its default, or skip_xff_append), and the peer chose the whole list. It returns false if
// this is unknown: without HTTP or headers, or for a peer without an IP address. On loopback, Envoy appends its own.
func (r *Request) withoutPeer() bool {
	peer, err := netip.ParseAddr(r.Source)
	if !r.HTTP || r.TooLarge || err != nil || peer.Unmap().IsLoopback() {
		return false
	}
	list, _ := r.Headers.Get(forwardedFor)
	last, err := netip.ParseAddr(strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:]))
	return err != nil || last.Unmap() != peer.Unmap()
}

// Headers are the headers of a request, in lower case. To compare some twenty names is faster than to make a map.
type Headers []reply.Header

// Get returns the values of a header joined by commas; ok is false without the header.
func (h Headers) Get(name string) (value string, ok bool) { return h.joined(name, ",") }

// Values returns all values of a header.
func (h Headers) Values(name string) (values []string) {
	for i := range h {
		if h[i].Name == name {
			values = append(values, h[i].Value)
		}
	}
	return values
}

// first returns the first value of a header, and how many there are.
func (h Headers) first(name string) (value string, count int) {
	for i := range h {
		if h[i].Name != name {
			continue
		}
		if count == 0 {
			value = h[i].Value
		}
		count++
	}
	return value, count
}

// joined returns the values of a header joined by a separator; ok is false without the header.
func (h Headers) joined(name, separator string) (value string, ok bool) {
	value, count := h.first(name)
	if count > 1 {
		value = strings.Join(h.Values(name), separator)
	}
	return value, count > 0
}
