package loadgen

import (
	"fmt"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
)

// warnsOfRateLimit warns of a request without a limit: there is nothing to decide.
func warnsOfRateLimit(answer []byte) string {
	r := &rlsv3.RateLimitResponse{}
	if proto.Unmarshal(answer, r) != nil || r.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		return ""
	}
	for _, s := range r.GetStatuses() {
		if s.GetCurrentLimit() != nil {
			return ""
		}
	}
	return "the first answer names no limit: check --domain and --descriptor, because no rule may match them"
}

// warnsOfCheck warns of a request that is refused before its limits are decided.
func warnsOfCheck(answer []byte) string {
	r := &authv3.CheckResponse{}
	if proto.Unmarshal(answer, r) != nil {
		return ""
	}
	switch code := r.GetDeniedResponse().GetStatus().GetCode(); code {
	case typev3.StatusCode_Unauthorized, typev3.StatusCode_Forbidden, typev3.StatusCode_NotFound,
		typev3.StatusCode_ServiceUnavailable:
		return fmt.Sprintf("the first request was refused with %d, before its limits: check --host, --path and --header",
			code)
	}
	return ""
}
