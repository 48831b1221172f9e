package auth

import (
	"encoding/base64"
	"net/http"
	"strconv"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

// Fields of google.rpc.Status, RetryInfo and QuotaFailure, as tags on the wire.
const (
	rpcCode    = 1<<3 | wire.Varint
	rpcMessage = 2<<3 | wire.Bytes
	rpcDetails = 3<<3 | wire.Bytes

	retryDelay      = 1<<3 | wire.Bytes
	durationSeconds = 1<<3 | wire.Varint
	durationNanos   = 2<<3 | wire.Varint
	quotaViolations = 1<<3 | wire.Bytes
)

// appendGRPC appends the headers for a gRPC client that is refused with this status. Envoy makes a gRPC status of the
// HTTP status: 14 (UNAVAILABLE, which clients retry at once) of 429. For a client over a limit, whatever the status of
// its denial, a grpc-status header replaces it, and grpc-status-details-bin has the details. limits can be nil.
func appendGRPC(headers []reply.Header, why reply.Reason, status int, limits *ratelimit.Result) []reply.Header {
	if status != http.StatusTooManyRequests && why.Status() != http.StatusTooManyRequests {
		return headers
	}
	headers = append(headers, reply.Header{Name: "grpc-status", Value: strconv.Itoa(int(wire.ResourceExhausted))})
	if limits == nil {
		return headers
	}
	b := wire.AppendVarint(nil, rpcCode, uint64(wire.ResourceExhausted))
	b = wire.AppendText(b, rpcMessage, wire.ValidText(why.Sentence(limits)))
	if wait := limits.RetryAfter; wait >= 0 {
		info, begun := wire.Begin(nil, retryDelay)
		info = wire.AppendVarint(info, durationSeconds, uint64(wait/1_000_000))
		info = wire.AppendVarint(info, durationNanos, uint64(wait%1_000_000*1000))
		b = appendDetail(b, "RetryInfo", wire.End(info, begun))
	}
	var quota []byte
	for i := range limits.Limits {
		if l := &limits.Limits[i]; l.Denied() && !l.Limit.Hidden {
			limit := strconv.FormatInt(l.Limit.Requests, 10)
			if l.Limit.Algorithm.Windowless() {
				limit += " at once"
			} else {
				limit += " per " + strconv.FormatInt(ratelimit.Seconds(l.Window()), 10) + " s"
			}
			var begun int
			quota, begun = wire.Begin(quota, quotaViolations)
			quota = wire.End(wire.AppendEntry(quota, wire.ValidText(l.Limit.Policy), limit), begun)
		}
	}
	if quota != nil {
		b = appendDetail(b, "QuotaFailure", quota)
	}
	return append(headers, reply.Header{Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(b)})
}

// appendDetail appends a google.protobuf.Any, whose fields are those of an entry of a map.
func appendDetail(b []byte, name string, message []byte) []byte {
	b, begun := wire.Begin(b, rpcDetails)
	return wire.End(wire.AppendEntry(b, "type.googleapis.com/google.rpc."+name, string(message)), begun)
}
