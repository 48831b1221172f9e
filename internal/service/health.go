package service

import (
	"net/http"

	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

// healthNames are the services that grpc.health.v1 knows: all of them (""), envoyproxy/ratelimit's name, and the full ones.
var healthNames = []string{"", "ratelimit", rls.ServiceName, auth.ServiceName}

// health reports, over gRPC and HTTP alike, whether requests should be sent here. After Shutdown it stays not serving.
type health struct{ *grpchealth.Server }

// set makes the service serving or not.
func (h health) set(ready bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		h.SetServingStatus(name, status)
	}
}

func (h health) serveReady(w http.ResponseWriter, r *http.Request) {
	all, err := h.Check(r.Context(), new(grpc_health_v1.HealthCheckRequest))
	if err != nil || all.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		http.Error(w, "not ready", http.StatusInternalServerError) // 500, as at envoyproxy/ratelimit
		return
	}
	_, _ = w.Write([]byte("OK\n")) // a prober that has gone wants no answer
}
