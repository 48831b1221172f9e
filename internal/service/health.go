package service

import (
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

// healthNames are the services that grpc.health.v1 knows: all of them (""), envoyproxy/ratelimit's name, and the full ones.
var healthNames = []string{"", "ratelimit", rls.ServiceName, auth.ServiceName}

// health says, over gRPC and HTTP alike, whether requests should be sent here. It starts as not serving.
type health struct {
	ready, drained atomic.Bool
	grpc           *grpchealth.Server
}

func newHealth() *health {
	h := &health{grpc: grpchealth.NewServer()}
	h.set(false)
	return h
}

func (h *health) register(g grpc.ServiceRegistrar) { grpc_health_v1.RegisterHealthServer(g, h.grpc) }

func (h *health) set(ready bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	h.ready.Store(ready)
	for _, name := range healthNames {
		h.grpc.SetServingStatus(name, status)
	}
}

// drain makes it not serving for good.
func (h *health) drain() {
	h.drained.Store(true)
	h.grpc.Shutdown()
}

func (h *health) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !h.ready.Load() || h.drained.Load() {
		http.Error(w, "not ready", http.StatusInternalServerError) // 500, as at envoyproxy/ratelimit
		return
	}
	_, _ = w.Write([]byte("OK\n")) // a prober that has gone wants no answer
}
