package rls

import (
	"math"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Fields of envoy.service.ratelimit.v3.RateLimitResponse, and of the messages in it, as tags on the wire.
const (
	responseCode     = 1<<3 | wire.Varint
	responseStatuses = 2<<3 | wire.Bytes
	responseHeaders  = 3<<3 | wire.Bytes
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

// appendResponse appends the response to Envoy. Statuses are always present and in the order of the request, because
// Envoy makes its own headers from them. The overall code is never UNKNOWN, for which Envoy would allow the request.
func (s *Server) appendResponse(b []byte, q *ratelimit.Query, res *ratelimit.Result) []byte {
	b = wire.AppendVarint(b, responseCode, code(!res.Allowed))
	for i := range res.Statuses {
		b = wire.AppendMessage(b, responseStatuses, func(b []byte) []byte { return s.appendStatus(b, &res.Statuses[i]) })
	}
	for _, h := range s.headers(res) {
		b = appendHeader(b, h)
	}
	if !res.Allowed && s.cfg.ProblemBody {
		b = appendHeader(b, reply.Header{Name: "content-type", Value: reply.ProblemType})
		b = wire.AppendText(b, responseBody, string(reply.Problem(res)))
	}
	if s.cfg.DynamicMetadata {
		b = wire.AppendMessage(b, responseMetadata, func(b []byte) []byte { return s.appendMetadata(b, q, res) })
	}
	return b
}

func code(denied bool) uint64 {
	if denied {
		return codeOverLimit
	}
	return codeOK
}

// appendStatus appends the fields of a DescriptorStatus.
func (s *Server) appendStatus(b []byte, status *ratelimit.Status) []byte {
	a := status.Binding
	b = wire.AppendVarint(b, statusCode, code(a != nil && a.Denied()))
	if a == nil {
		if status.Unlimited {
			b = wire.AppendVarint(b, statusRemaining, math.MaxUint32)
		}
		return b
	}
	b = wire.AppendMessage(b, statusLimit, func(b []byte) []byte {
		b = wire.AppendVarint(b, limitRequests, uint64(uint32(a.Limit.Requests)))
		b = wire.AppendVarint(b, limitUnit, uint64(a.Limit.Unit))
		b = wire.AppendText(b, limitName, wire.ValidText(a.Limit.Name))
		if a.Limit.UnitMultiplier > 1 {
			b = wire.AppendMessage(b, limitMultiplier, func(b []byte) []byte {
				return wire.AppendVarint(b, wrapperValue, uint64(a.Limit.UnitMultiplier))
			})
		}
		return b
	})
	b = wire.AppendVarint(b, statusRemaining, uint64(a.Remaining()))
	return wire.AppendMessage(b, statusReset, func(b []byte) []byte {
		return wire.AppendVarint(b, durationSeconds, uint64(s.wait(a)))
	})
}

func appendHeader(b []byte, h reply.Header) []byte {
	return wire.AppendMessage(b, responseHeaders, func(b []byte) []byte {
		return wire.AppendEntry(b, h.Name, wire.ValidText(h.Value))
	})
}
