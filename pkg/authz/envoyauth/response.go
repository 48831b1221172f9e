package envoyauth

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit/reply"
)

// response makes Envoy's answer. Envoy decides by status.code alone, and takes a response without a status for an allowed one:
// so every answer starts as one that denies.
func response(a *answer) *authv3.CheckResponse {
	res := &authv3.CheckResponse{
		Status:          &rpcstatus.Status{Code: int32(codes.PermissionDenied)},
		DynamicMetadata: dynamicMetadata(a.decision),
	}
	switch a.decision.Verdict {
	case authz.Allowed:
		allow(res, a)
	case authz.Undecided:
		undecided(res, a)
	default:
		deny(res, a)
	}
	return res
}

// deny says how the request is refused (denied_response).
func deny(res *authv3.CheckResponse, a *answer) {
	res.HttpResponse = &authv3.CheckResponse_DeniedResponse{DeniedResponse: refusal(a)}
}

// undecided makes it an error (error_response): Envoy counts it as one, and does what failure_mode_allow says. An Envoy that is
// older than the field denies, too, by the status.
func undecided(res *authv3.CheckResponse, a *answer) {
	res.Status.Code = int32(codes.Unavailable)
	res.HttpResponse = &authv3.CheckResponse_ErrorResponse{ErrorResponse: refusal(a)}
}

// allow lets the request pass (ok_response).
func allow(res *authv3.CheckResponse, a *answer) {
	res.HttpResponse = &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
		Headers:                 headerOptions(a.toUpstream),
		HeadersToRemove:         a.remove,
		ResponseHeadersToAdd:    headerOptions(a.toClient),
		QueryParametersToRemove: a.removeQuery,
	}}
	res.Status.Code = int32(codes.OK)
}

func refusal(a *answer) *authv3.DeniedHttpResponse {
	return &authv3.DeniedHttpResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(a.status)},
		Headers: headerOptions(a.toClient),
		Body:    a.body,
	}
}

// headerOptions makes header mutations that replace what is there, whatever Envoy's default is in this version and this list.
// Always in value: Envoy ignores raw_value here.
func headerOptions(headers []reply.Header) []*corev3.HeaderValueOption {
	if len(headers) == 0 {
		return nil
	}
	options := make([]*corev3.HeaderValueOption, len(headers))
	memory := make([]struct {
		option corev3.HeaderValueOption
		value  corev3.HeaderValue
	}, len(headers))
	for i, h := range headers {
		m := &memory[i]
		m.value.Key, m.value.Value = h.Name, h.Value
		m.option.Header = &m.value
		m.option.AppendAction = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		options[i] = &m.option
	}
	return options
}
