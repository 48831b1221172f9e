package rls

import (
	"math"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// response makes Envoy's answer of a result: statuses always filled and in the order of the request, since Envoy makes its own
// headers from them; the overall code never UNKNOWN, since Envoy would let the request pass.
func (s *Server) response(q *ratelimit.Query, res *ratelimit.Result) *ratelimitv3.RateLimitResponse {
	m := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(res.Statuses)),
	}
	for i := range res.Statuses {
		m.Statuses[i] = descriptorStatus(&res.Statuses[i])
	}
	if !res.Allowed {
		m.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	if headers := s.cfg.Headers.For(res); len(headers) > 0 {
		m.ResponseHeadersToAdd = make([]*corev3.HeaderValue, 0, len(headers)+1)
		for _, h := range headers {
			m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, &corev3.HeaderValue{Key: h.Name, Value: h.Value})
		}
	}
	if !res.Allowed && s.cfg.ProblemBody {
		m.RawBody = reply.Problem(res)
		m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, &corev3.HeaderValue{Key: "content-type", Value: reply.ProblemType})
	}
	if s.cfg.DynamicMetadata {
		m.DynamicMetadata = dynamicMetadata(q, res)
	}
	return m
}

func descriptorStatus(s *ratelimit.Status) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	m := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
	if s.Unlimited {
		m.LimitRemaining = math.MaxUint32
	}
	a := s.Binding
	if a == nil {
		return m
	}
	if a.Denied() {
		m.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	m.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		// Text of a proto must be UTF-8, or no answer could be sent.
		Name:            strings.ToValidUTF8(a.Limit.Name, "\uFFFD"),
		RequestsPerUnit: uint32(a.Limit.Requests),
		Unit:            ratelimitv3.RateLimitResponse_RateLimit_Unit(a.Limit.Unit),
	}
	if a.Limit.UnitMultiplier > 1 {
		m.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(a.Limit.UnitMultiplier)
	}
	m.LimitRemaining = a.Remaining()
	m.DurationUntilReset = &durationpb.Duration{Seconds: a.Wait()}
	return m
}
