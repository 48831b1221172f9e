package service

import (
	"math"

	"github.com/extauthz/extauthz/internal/guard"
)

const (
	// Shares of the memory limit: an eighth for connections, a quarter for requests in flight. Buckets, rules and keys have the rest.
	connectionShare, requestShare = 8, 4
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
