package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/internal/settings"
)

// webServer is a server of HTTP and the listener that it serves.
type webServer struct {
	name     string
	listener net.Listener
	*http.Server
}

func newWebServer(name string, l net.Listener, handler http.Handler, bugs *panics) webServer {
	return webServer{name, l, newHTTPServer(bugs.handler(name, handler))}
}

// webServers returns the servers of all open ports but that of gRPC.
func (l listeners) webServers(s *settings.Settings, r *requests) []webServer {
	debug := debugHandler(r.registry, r.source.serve, r.ready, s.Listeners.Pprof && l.pprof == nil)
	servers := []webServer{
		newWebServer("HTTP", l.guarded["http"], r.Checks(mainHandler(r.Flow, r.ready)), r.bugs),
		newWebServer("debug", l.guarded["debug"], debug, r.bugs),
	}
	if prometheus := l.guarded["prometheus"]; prometheus != nil {
		metrics := metricsHandler(r.registry, string(s.Telemetry.PrometheusPath))
		servers = append(servers, newWebServer("Prometheus", prometheus, metrics, r.bugs))
		r.log.Info("serving metrics", "prometheus", prometheus.Addr().String()+string(s.Telemetry.PrometheusPath))
	}
	if l.pprof != nil {
		servers = append(servers, newWebServer("pprof", l.pprof, profilesHandler(), r.bugs))
		r.log.Info("serving profiles", "pprof", l.pprof.Addr().String())
	}
	return servers
}

func wrapServe(name string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) ||
		errors.Is(err, h2unary.ErrStopped) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", name, err)
}

// awaitEnvoys waits for DRAIN_DELAY, in which Envoys notice that this replica is about to end.
func (cfg Config) awaitEnvoys(log *slog.Logger) {
	delay := cfg.Settings.Process.DrainDelay
	if delay <= 0 {
		return
	}
	log.Info("draining", "delay", delay)
	if cfg.Terminal {
		fmt.Fprintf(cfg.Stderr, "extauthz: draining for %g s; press Ctrl-C again to stop now\n", delay.Seconds())
	}
	<-time.After(delay)
}

// shutDown accepts no new requests, and waits at most timeout for requests in flight.
func shutDown(timeout time.Duration, log *slog.Logger, g transport, servers []webServer) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	g.Shutdown(ctx)
	for _, server := range servers {
		if err := server.Shutdown(ctx); err != nil {
			log.Warn("HTTP requests were cut off after DRAIN_TIMEOUT", "server", server.name, "error", err)
		}
	}
}
