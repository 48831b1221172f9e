package auth

import (
	"math"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
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
	b = appendHeaders(b, okHeaders, a.toUpstream)
	b = append(b, a.stripped.encode(a.decision.Strip)...)
	for _, name := range a.remove {
		b = wire.AppendText(b, okRemove, name)
	}
	b = appendHeaders(b, okResponseHeaders, a.toClient)
	for _, name := range a.removeQuery {
		b = wire.AppendText(b, okRemoveQuery, name)
	}
	return b
}

// stripped are names in their form on the wire. Almost every answer of a service removes the same ones.
type stripped struct {
	names   *httpheader.Names
	encoded []byte
}

// encode returns the form of the names, nil for none.
func (s *stripped) encode(names *httpheader.Names) []byte {
	if s.names != names {
		s.names, s.encoded = names, nil
		for _, name := range names.List() {
			s.encoded = wire.AppendText(s.encoded, okRemove, name)
		}
	}
	return s.encoded
}

// appendRefusal appends the fields of a DeniedHttpResponse.
func (a *Answer) appendRefusal(b []byte) []byte {
	b, begun := wire.Begin(b, deniedStatus)
	b = wire.End(wire.AppendVarint(b, httpStatusCode, uint64(a.Status)), begun)
	b = appendHeaders(b, deniedHeaders, a.toClient)
	if a.body != "" {
		b = wire.AppendText(b, deniedBody, a.body)
	}
	return b
}

// appendHeaders appends HeaderValueOptions with an explicit action, because Envoy's default depends on its version and
// on the list. The value is in value, because Envoy ignores raw_value here.
func appendHeaders(b []byte, list uint64, headers []reply.Header) []byte {
	for _, h := range headers {
		var option, header int
		b, option = wire.Begin(b, list)
		b, header = wire.Begin(b, optionHeader)
		b = wire.End(wire.AppendEntry(b, h.Name, h.Value), header)
		b = wire.End(wire.AppendVarint(b, optionAction, uint64(actionOf(list, h.Name))), option)
	}
	return b
}

// actionOf returns what Envoy does if a header already exists. On a response of the upstream, it keeps the values of
// the upstream and of Envoy's rate limit filter. A denial of that filter also passes there, and must not get the limits
// of another decision. RateLimit and RateLimit-Policy are lists (RFC 9651), to which it appends values.
func actionOf(list uint64, name string) corev3.HeaderValueOption_HeaderAppendAction {
	switch {
	case list != okResponseHeaders:
		return corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	case name == "ratelimit" || name == "ratelimit-policy":
		return corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	}
	return corev3.HeaderValueOption_ADD_IF_ABSENT
}

// appendMetadata appends the fields of dynamic_metadata, a google.protobuf.Struct in the namespace of the ext_authz
// filter. Envoy's access logs and later filters can read it. It has reason and domain, and owner, plan, method and
// key_id of a known caller. It has rule and remaining of the tightest limit, and decided_by, the source of the
// decision. A denial has retry_after in seconds, and denied_since. It has the limit of the credential, in the format of
// `limit.dynamic_metadata` in a route's rate_limits. Empty values are left out, because a rate limit action uses
// default_value only for a missing one.
func appendMetadata(b []byte, d *authz.Decision) []byte {
	for _, f := range facts(d) {
		if f.value != "" {
			b = wire.AppendField(b, f.name, f.value)
		}
	}
	if tightest := d.Limits.Tightest(); tightest != nil {
		b = wire.AppendField(b, "remaining", tightest.Binding.Decision.Remaining)
	}
	if wait, since, denied := d.Limits.Denial(); denied {
		if wait >= 0 {
			b = wire.AppendField(b, "retry_after", wait)
		}
		if since != "" {
			b = wire.AppendField(b, "denied_since", since)
		}
	}
	if l := d.Identity.Limit; expressible(l) {
		b = wire.AppendField(b, "limit", func(b []byte) []byte {
			b = wire.AppendField(b, "requests_per_unit", l.Requests)
			return wire.AppendField(b, "unit", strings.ToUpper(l.Unit.String()))
		})
	}
	return b
}

// fact is one field of a decision for metadata.
type fact struct{ name, value string }

func facts(d *authz.Decision) [8]fact {
	id := &d.Identity
	return [...]fact{
		{"reason", string(d.Reason)}, {"domain", d.Domain},
		{"owner", id.Owner}, {"plan", id.Plan}, {"method", id.Method}, {"key_id", id.KeyID},
		{"rule", d.Limits.Tightest().RuleName()}, {"decided_by", d.Limits.DecidedBy()},
	}
}

// expressible reports whether Envoy can express the limit (RateLimitOverride). Envoy knows neither weeks, calendars nor
// several units. It drops what it does not know, which would leave another limit.
func expressible(l *ratelimit.LimitSpec) bool {
	return l != nil && l.Calendar == "" && l.Multiplier <= 1 && l.Requests >= 0 && l.Requests <= math.MaxUint32 &&
		l.Unit > descriptors.UnknownUnit && l.Unit <= descriptors.Year
}

// sendableValue returns the value as valid UTF-8, which a protobuf message requires. ok is false if it has control
// characters. Envoy writes CR and LF unchanged, so the text after them would be another header (RFC 9110, 5.5).
func sendableValue(value string) (valid string, ok bool) {
	if isPrintable(value) {
		return value, true
	}
	return wire.ValidText(value), httpguts.ValidHeaderFieldValue(value)
}

// isPrintable reports whether a text consists of visible characters of ASCII and spaces, as almost all values do.
func isPrintable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
