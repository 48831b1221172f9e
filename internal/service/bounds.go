package service

import (
	"context"
	"math"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/internal/guard"
)

// Shares of the memory limit. Buckets, rules and keys have the rest.
const (
	connectionShare = 8 // an eighth for connections
	requestShare    = 4 // a quarter for requests in flight
)

const (
	// connectionSize is what a connection without requests takes.
	connectionSize = 48 << 10
	// minConnections is for a small container, maxConnections for one without a limit.
	minConnections, maxConnections = 500, 10_000
	// debugConnections is for Prometheus and people. Each may make an answer of megabytes.
	debugConnections = 32
	// unlimited is taken for the memory limit where there is none.
	unlimited = 4 << 30
)

// bounds are those of the three ports.
type bounds struct{ grpc, http, debug guard.Config }

func portBounds(s *Settings, memory int64) bounds {
	if memory == math.MaxInt64 {
		memory = unlimited
	}
	connections := int(min(maxConnections, max(minConnections, memory/connectionShare/connectionSize)))
	requests := memory / requestShare
	b := bounds{
		grpc:  guard.Config{Connections: connections, Bytes: requests / 2, HTTP2: true},
		http:  guard.Config{Connections: connections / 2, Bytes: requests / 4},
		debug: guard.Config{Connections: debugConnections, Bytes: requests / 4},
	}
	if s.MaxConnections > 0 {
		b.grpc.Connections = s.MaxConnections
	}
	if s.HTTPMaxConnections > 0 {
		b.http.Connections = s.HTTPMaxConnections
	}
	return b
}

// guard puts a guard before each listener, and counts what they do. The guards end with ctx, which must outlive the servers.
func (l *listeners) guard(ctx context.Context, b bounds, r prometheus.Registerer) {
	for _, port := range []struct {
		name     string
		listener *net.Listener
		bounds   guard.Config
	}{
		{"grpc", &l.grpc, b.grpc}, {"http", &l.http, b.http}, {"debug", &l.debug, b.debug},
	} {
		guarded := guard.New(*port.listener, port.bounds)
		*port.listener = guarded
		go guarded.Run(ctx)
		labels := prometheus.Labels{"port": port.name}
		r.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "extauthz_connections", Help: "Open connections", ConstLabels: labels,
			}, func() float64 { return float64(guarded.Connections()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "extauthz_inflight_bytes", Help: "Memory that requests in flight take, at most", ConstLabels: labels,
			}, func() float64 { return float64(guarded.Held()) }),
		)
		for _, reason := range guard.Reasons() {
			r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "extauthz_cut_total", Help: "Connections closed and requests reset to protect the service, by reason",
				ConstLabels: prometheus.Labels{"port": port.name, "reason": reason.String()},
			}, func() float64 { return float64(guarded.Cuts(reason)) }))
		}
	}
}
