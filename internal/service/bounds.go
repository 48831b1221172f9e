package service

import (
	"math"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/settings"
)

const (
	// Connections may take an eighth of the memory limit, and requests in flight a quarter. The rest is for buckets, rules
	// and keys.
	connectionShare, requestShare = 8, 4
	// connectionSize is the memory of a connection without requests.
	connectionSize = 48 << 10
	// minConnections is for a small container, maxConnections for one without a limit.
	minConnections, maxConnections = 500, 10_000
	// debugConnections is enough for Prometheus and operators. Each connection may get a response of megabytes.
	debugConnections = 32
	// unlimited stands for the memory limit if there is none.
	unlimited = 4 << 30
)

// bounds are the bounds of each port.
type bounds struct{ grpc, http, debug, prometheus guard.Config }

func portBounds(s *settings.Settings, memory int64) bounds {
	if memory == math.MaxInt64 {
		memory = unlimited
	}
	connections := int(min(maxConnections, max(minConnections, memory/connectionShare/connectionSize)))
	requests := memory / requestShare
	b := bounds{
		grpc:  guard.Config{Connections: connections, Bytes: requests / 2, Metered: true},
		http:  guard.Config{Connections: connections / 2, Bytes: requests / 4},
		debug: guard.Config{Connections: debugConnections, Bytes: requests / 4},
		// Requests to both have no body, so the bytes are only a bound.
		prometheus: guard.Config{Connections: debugConnections, Bytes: requests / 4},
	}
	if s.Listeners.MaxConnections > 0 {
		b.grpc.Connections = s.Listeners.MaxConnections
	}
	if s.Listeners.HTTPMaxConnections > 0 {
		b.http.Connections = s.Listeners.HTTPMaxConnections
	}
	return b
}
