package service

import (
	"net/http"
	"sync"

	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

// healthNames are the services of grpc.health.v1: "" for all, the short name of envoyproxy/ratelimit, and the full
// names.
var healthNames = []string{"", "ratelimit", rls.ServiceName, auth.ServiceName}

// health reports over gRPC and HTTP whether this replica accepts requests: while all its conditions hold. After
// Shutdown it stays NOT_SERVING.
type health struct {
	*grpchealth.Server

	mu      sync.Mutex
	missing map[condition]bool
}

// condition is something that a replica needs to accept requests.
type condition string

const (
	rulesActive  condition = "rules are active"
	redisAnswers condition = "Redis answers"
)

// newHealth returns a health that reports SERVING.
func newHealth() *health {
	return &health{Server: grpchealth.NewServer(), missing: map[condition]bool{}}
}

// set records whether a condition holds, and sets the state of all services to SERVING or NOT_SERVING.
func (h *health) set(c condition, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.missing, c); !holds {
		h.missing[c] = true
	}
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if len(h.missing) == 0 {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		h.SetServingStatus(name, status)
	}
}

func (h *health) serveReady(w http.ResponseWriter, r *http.Request) {
	all, err := h.Check(r.Context(), new(grpc_health_v1.HealthCheckRequest))
	if err != nil || all.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		http.Error(w, "not ready", http.StatusInternalServerError) // 500, as at envoyproxy/ratelimit
		return
	}
	_, _ = w.Write([]byte("OK\n")) // an error means that the client is gone
}
