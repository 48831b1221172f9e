package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
)

// Bounds of the HTTP servers against slow and idle clients.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeader         = 128 << 10
)

func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
}

// webServer is a server of HTTP and the listener that it serves.
type webServer struct {
	name     string
	listener net.Listener
	*http.Server
}

// webServers returns the servers of all open ports but that of gRPC.
func (l listeners) webServers(r *requests) (servers []webServer) {
	add := func(name string, on net.Listener, handler http.Handler) {
		server := newHTTPServer(r.bugs.handler(name, handler))
		server.ErrorLog = slog.NewLogLogger(r.log.Handler(), slog.LevelWarn)
		servers = append(servers, webServer{name, on, server})
	}
	s, main, debug := r.Settings, l.guarded["http"], l.guarded["debug"]
	add("HTTP", main, r.Checks(mainHandler(notFromPages(main, r.ServeJSON), r.ServeQuota, r.ready)))
	profiles := s.Listeners.Pprof && l.pprof == nil
	add("debug", debug, notFromPages(debug, r.debugHandler(profiles).ServeHTTP))
	if prometheus := l.guarded["prometheus"]; prometheus != nil {
		add("Prometheus", prometheus, metricsHandler(r.registry, s.Telemetry.PrometheusPath))
		r.log.Info("serving metrics", "prometheus", prometheus.Addr().String()+s.Telemetry.PrometheusPath)
	}
	if l.pprof != nil {
		add("pprof", l.pprof, notFromPages(l.pprof, profilesHandler().ServeHTTP))
		r.log.Info("serving profiles", "pprof", l.pprof.Addr().String())
	}
	return servers
}

// mainHandler serves /json, which decides, /quota, which shows a client its quota, and health.
func mainHandler(serveJSON http.Handler, serveQuota http.HandlerFunc, h *health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", serveJSON)
	mux.Handle("GET "+auth.QuotaPath, serveQuota)
	addHealth(mux, h)
	return mux
}

func addHealth(mux *http.ServeMux, h *health) {
	mux.HandleFunc("/healthcheck", h.serveReady)
	mux.HandleFunc("/readyz", h.serveReady)
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") })
}

// debugHandler serves pages for operators: the active rules, the hottest keys, metrics, health and profiles.
func (r *requests) debugHandler(withProfiles bool) http.Handler {
	index := "/              pages for a browser\n/rlconfig      the active rules\n" +
		"/metrics       for Prometheus\n/healthcheck   /readyz   /livez\n" +
		"/explain       why a request (POST, JSON) would pass or not\n" +
		"/buckets       what buckets (POST, JSON) hold\n" +
		"/top           the keys that are hot, near or over their limit\n" +
		"/shadow        what limits in shadow would deny\n"
	var profiles http.Handler = http.HandlerFunc(noProfiles)
	if withProfiles {
		profiles = profilesHandler()
		index += "/debug/pprof/  profiles\n"
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/rlconfig", r.source.serve)
	r.addAnswers(mux)
	mux.Handle("/metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/pprof/", profiles)
	addHealth(mux, r.ready)
	r.addPages(mux, index)
	return mux
}

// metricsHandler serves the metrics at one path (PROMETHEUS_PATH).
func metricsHandler(registry *prometheus.Registry, path string) http.Handler {
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.Error(w, "The metrics are at "+path+".", http.StatusNotFound)
			return
		}
		metrics.ServeHTTP(w, r)
	})
}

// profilesHandler serves profiles (net/http/pprof), only to this machine: they show its memory and cost time.
func profilesHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func noProfiles(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "No profiles are served here. Set DEBUG_PPROF=true: they are then on this port if it is on loopback, "+
		"else on port DEBUG_PPROF_PORT of 127.0.0.1.", http.StatusNotFound)
}

func wrapServe(name string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
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
