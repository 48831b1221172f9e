package auth

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

// grpcHeaders returns the headers for a gRPC client that is over a limit. Envoy makes a gRPC status of the HTTP
// status: 16 of 401, 7 of 403, 14 (UNAVAILABLE, which clients retry at once) of 429. A grpc-status header overrides
// it. Clients find google.rpc.RetryInfo and QuotaFailure in grpc-status-details-bin.
func grpcHeaders(status int, message string, d *authz.Decision) []reply.Header {
	if status != http.StatusTooManyRequests {
		return nil
	}
	headers := []reply.Header{{Name: "grpc-status", Value: strconv.Itoa(int(wire.ResourceExhausted))}}
	if d.Limits == nil {
		return headers
	}
	details, err := proto.Marshal(exhausted(message, d.Limits))
	if err != nil {
		return headers
	}
	return append(headers, reply.Header{
		Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(details),
	})
}

func exhausted(message string, limits *ratelimit.Result) *rpcstatus.Status {
	s := &rpcstatus.Status{Code: int32(wire.ResourceExhausted), Message: message}
	if limits.RetryAfter >= 0 {
		// At most 285 years: see bucket.MaxWindow.
		wait := durationpb.New(time.Duration(limits.RetryAfter) * time.Microsecond)
		s.Details = appendAny(s.Details, &errdetails.RetryInfo{RetryDelay: wait})
	}
	quota := new(errdetails.QuotaFailure)
	for i := range limits.Limits {
		if l := &limits.Limits[i]; l.Denied() {
			window := strconv.FormatInt(ratelimit.Seconds(l.Limit.Window), 10)
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
				Subject:     wire.ValidText(l.Limit.Policy),
				Description: strconv.FormatInt(l.Limit.Requests, 10) + " per " + window + " s",
			})
		}
	}
	if len(quota.Violations) > 0 {
		s.Details = appendAny(s.Details, quota)
	}
	return s
}

func appendAny(list []*anypb.Any, m proto.Message) []*anypb.Any {
	packed, err := anypb.New(m)
	if err != nil {
		return list
	}
	return append(list, packed)
}
