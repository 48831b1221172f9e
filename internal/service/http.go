package service

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/extauthz/extauthz/internal/flow"
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

// mainHandler serves /json, which decides, /healthcheck and /readyz, which report whether this replica accepts
// requests, and /livez, which always answers.
func mainHandler(requests *flow.Flow, h *health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", requests.ServeJSON)
	addHealth(mux, h)
	return mux
}

func addHealth(mux *http.ServeMux, h *health) {
	mux.HandleFunc("/healthcheck", h.serveReady)
	mux.HandleFunc("/readyz", h.serveReady)
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") })
}

// debugHandler serves pages for operators: the active rules, metrics, health and profiles.
func debugHandler(registry *prometheus.Registry, rules http.HandlerFunc, h *health, withProfiles bool) http.Handler {
	index := "/rlconfig      the active rules\n/metrics       for Prometheus\n/healthcheck   /readyz   /livez\n"
	var profiles http.Handler = http.HandlerFunc(noProfiles)
	if withProfiles {
		profiles = profilesHandler()
		index += "/debug/pprof/  profiles\n"
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/rlconfig", rules)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/pprof/", profiles)
	addHealth(mux, h)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, index) })
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

// profilesHandler serves profiles (net/http/pprof). Only this machine may read them, because they show what is in
// memory and cost time.
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
