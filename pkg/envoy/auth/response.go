package auth

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

// Fields of envoy.service.auth.v3.CheckResponse, and of its messages, as tags on the wire. See also request.go.
const (
	responseStatus   = 1<<3 | wire.Bytes
	responseDenied   = 2<<3 | wire.Bytes
	responseOK       = 3<<3 | wire.Bytes
	responseMetadata = 4<<3 | wire.Bytes
	responseError    = 5<<3 | wire.Bytes

	statusCode = 1<<3 | wire.Varint

	okHeaders         = 2<<3 | wire.Bytes
	okRemove          = 5<<3 | wire.Bytes
	okResponseHeaders = 6<<3 | wire.Bytes
	okRemoveQuery     = 8<<3 | wire.Bytes

	deniedStatus  = 1<<3 | wire.Bytes
	deniedHeaders = 2<<3 | wire.Bytes
	deniedBody    = 3<<3 | wire.Bytes

	httpStatusCode = 1<<3 | wire.Varint

	optionHeader = 1<<3 | wire.Bytes
	optionAction = 3<<3 | wire.Varint
)

// Append appends an envoy.service.auth.v3.CheckResponse. Envoy decides by status.code alone and allows a
// response without a code, so every response begins as a refusal (denied_response). An undecided response is an error
// to Envoy (error_response), and failure_mode_allow decides. An Envoy without that field denies, because of the code.
func (a *Answer) Append(b []byte) []byte {
	code, field := wire.PermissionDenied, responseDenied
	switch a.decision.Verdict {
	case authz.Allowed:
		code, field = wire.OK, responseOK
	case authz.Undecided:
		code, field = wire.Unavailable, responseError
	}
	b, begun := wire.Begin(b, responseStatus)
	b = wire.End(wire.AppendVarint(b, statusCode, uint64(code)), begun)
	b, begun = wire.Begin(b, field)
	if a.decision.Verdict == authz.Allowed {
		b = a.appendOK(b)
	} else {
		b = a.appendRefusal(b)
	}
	b, begun = wire.Begin(wire.End(b, begun), responseMetadata)
	return wire.End(appendMetadata(b, a.decision), begun)
}

// appendOK appends the fields of an OkHttpResponse.
func (a *Answer) appendOK(b []byte) []byte {
	b = appendHeaders(b, okHeaders, a.toUpstream, replace)
	for _, name := range a.remove {
		b = wire.AppendText(b, okRemove, name)
	}
	b = appendHeaders(b, okResponseHeaders, a.toClient, join)
	for _, name := range a.removeQuery {
		b = wire.AppendText(b, okRemoveQuery, name)
	}
	return b
}

// appendRefusal appends the fields of a DeniedHttpResponse.
func (a *Answer) appendRefusal(b []byte) []byte {
	b, begun := wire.Begin(b, deniedStatus)
	b = wire.End(wire.AppendVarint(b, httpStatusCode, uint64(a.Status)), begun)
	b = appendHeaders(b, deniedHeaders, a.toClient, replace)
	if a.body != "" {
		b = wire.AppendText(b, deniedBody, a.body)
	}
	return b
}

// appendAction is what Envoy does if the header already exists.
type appendAction = corev3.HeaderValueOption_HeaderAppendAction

// replace overwrites every existing value.
func replace(string) appendAction { return corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD }

// join keeps existing values of the upstream and of Envoy's rate limit filter. A denial of that filter also passes
// here, and must not get the limits of another decision. RateLimit and RateLimit-Policy are lists (RFC 9651), to which
// values are appended. The other headers have one value.
func join(name string) appendAction {
	if name == "ratelimit" || name == "ratelimit-policy" {
		return corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	}
	return corev3.HeaderValueOption_ADD_IF_ABSENT
}

// appendHeaders appends HeaderValueOptions with an explicit action, because Envoy's default depends on its version and
// on the list. The value is in value, because Envoy ignores raw_value here.
func appendHeaders(b []byte, tag uint64, headers []reply.Header, action func(name string) appendAction) []byte {
	for _, h := range headers {
		var option, header int
		b, option = wire.Begin(b, tag)
		b, header = wire.Begin(b, optionHeader)
		b = wire.End(wire.AppendEntry(b, h.Name, h.Value), header)
		b = wire.End(wire.AppendVarint(b, optionAction, uint64(action(h.Name))), option)
	}
	return b
}
