package rls

import (
	"math"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

// Fields of envoy.service.ratelimit.v3.RateLimitResponse, and of the messages in it, as tags on the wire.
const (
	responseCode     = 1<<3 | wire.Varint
	responseStatuses = 2<<3 | wire.Bytes
	responseHeaders  = 3<<3 | wire.Bytes
	requestHeaders   = 4<<3 | wire.Bytes
	responseBody     = 5<<3 | wire.Bytes
	responseMetadata = 6<<3 | wire.Bytes

	statusCode      = 1<<3 | wire.Varint
	statusLimit     = 2<<3 | wire.Bytes
	statusRemaining = 3<<3 | wire.Varint
	statusReset     = 4<<3 | wire.Bytes

	limitRequests   = 1<<3 | wire.Varint
	limitUnit       = 2<<3 | wire.Varint
	limitName       = 3<<3 | wire.Bytes
	limitMultiplier = 4<<3 | wire.Bytes

	durationSeconds = 1<<3 | wire.Varint

	codeOK        = 1
	codeOverLimit = 2
)

// AppendResponse appends the response to Envoy. It has all statuses in the order of the request, because Envoy makes
// headers from them. Its code is never UNKNOWN, for which Envoy would allow the request. headers is memory.
func (c *Codec) AppendResponse(b []byte, q *ratelimit.Query, res *ratelimit.Result, headers *reply.List) []byte {
	b = wire.AppendVarint(b, responseCode, code(!res.Allowed))
	for i := range res.Statuses {
		b = c.appendStatus(b, &res.Statuses[i])
	}
	headers.Reset()
	c.addHeaders(headers, res)
	for i := range headers.Headers {
		b = appendHeader(b, responseHeaders, &headers.Headers[i])
	}
	if len(c.Upstream.Sets) > 0 {
		b = c.appendUpstream(b, res, headers)
	}
	if !res.Allowed && c.ProblemBody {
		b = appendHeader(b, responseHeaders, &reply.Header{Name: "content-type", Value: reply.ProblemType})
		var begun int
		b, begun = wire.Begin(b, responseBody)
		b = wire.End(reply.AppendProblem(b, res), begun)
	}
	if c.DynamicMetadata {
		b = wire.AppendMessage(b, responseMetadata, func(b []byte) []byte { return c.appendMetadata(b, q, res) })
	}
	return b
}

func code(denied bool) uint64 {
	if denied {
		return codeOverLimit
	}
	return codeOK
}

// appendStatus appends a DescriptorStatus.
func (c *Codec) appendStatus(b []byte, status *ratelimit.Status) []byte {
	b, begun := wire.Begin(b, responseStatuses)
	a, shown := status.Binding, status.Shown
	denied := a != nil && a.Denied()
	b = wire.AppendVarint(b, statusCode, code(denied))
	switch {
	case a != nil:
		if shown != nil { // Envoy makes headers of statuses with a limit only
			b = appendLimit(b, shown.Limit)
			b = wire.AppendVarint(b, statusRemaining, uint64(shown.Remaining()))
			if !denied {
				a = shown
			}
		}
		var reset int
		b, reset = wire.Begin(b, statusReset)
		b = wire.End(wire.AppendVarint(b, durationSeconds, uint64(c.wait(a))), reset)
	case status.Unlimited:
		b = wire.AppendVarint(b, statusRemaining, math.MaxUint32)
	}
	return wire.End(b, begun)
}

// appendLimit appends the current_limit of a status.
func appendLimit(b []byte, l *ratelimit.RuleLimit) []byte {
	b, begun := wire.Begin(b, statusLimit)
	b = wire.AppendVarint(b, limitRequests, uint64(min(l.Requests, math.MaxUint32)))
	if l.Unit != descriptors.UnknownUnit { // one of concurrency has no window
		b = wire.AppendVarint(b, limitUnit, uint64(l.Unit))
	}
	b = wire.AppendText(b, limitName, wire.ValidText(l.Name))
	if l.UnitMultiplier > 1 {
		var multiplier int
		b, multiplier = wire.Begin(b, limitMultiplier)
		b = wire.End(wire.AppendVarint(b, wrapperValue, uint64(l.UnitMultiplier)), multiplier)
	}
	return wire.End(b, begun)
}

// appendUpstream appends the headers for the upstream. In both modes they are about the limit that envoyproxy/ratelimit
// takes, so the upstream learns when a rule in shadow mode is used up.
func (c *Codec) appendUpstream(b []byte, res *ratelimit.Result, headers *reply.List) []byte {
	a := strictest(res)
	if a == nil {
		return b
	}
	headers.Reset()
	c.Upstream.AddTriple(headers, a, c.wait(a))
	for i := range headers.Headers {
		b = appendHeader(b, requestHeaders, &headers.Headers[i])
	}
	return b
}

// appendHeader appends a HeaderValue. The package reply writes only ASCII.
func appendHeader(b []byte, tag uint64, h *reply.Header) []byte {
	b, begun := wire.Begin(b, tag)
	return wire.End(wire.AppendEntry(b, h.Name, h.Value), begun)
}
