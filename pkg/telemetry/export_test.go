package telemetry

import "context"

// Connect connects as Run does.
func (s *Statsd) Connect(ctx context.Context) { s.connect(ctx) }
