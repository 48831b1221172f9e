package service

import (
	"cmp"
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

// bounds are the bounds of each port, by its name in metrics.
type bounds map[string]guard.Config

func portBounds(s *settings.Settings, memory int64) bounds {
	if memory == math.MaxInt64 {
		memory = unlimited
	}
	connections := int(min(maxConnections, max(minConnections, memory/connectionShare/connectionSize)))
	requests := memory / requestShare
	pages := guard.Config{Connections: debugConnections, Bytes: requests / 4} // the requests have no body
	return bounds{
		"grpc":  {Connections: cmp.Or(s.Listeners.MaxConnections, connections), Bytes: requests / 2, Metered: true},
		"http":  {Connections: cmp.Or(s.Listeners.HTTPMaxConnections, connections/2), Bytes: requests / 4},
		"debug": pages, "prometheus": pages,
	}
}
