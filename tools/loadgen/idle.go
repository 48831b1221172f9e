package loadgen

import (
	"context"
	"fmt"
	"time"
)

// IdleMemory opens the connections of a plan without requests. It returns the server's memory for each, in bytes.
func IdleMemory(ctx context.Context, p Plan) (float64, error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	server := findListener(p.Address)
	before := server.memory()
	if before == 0 {
		return 0, fmt.Errorf("%s: %w", p.Address, errUnknown)
	}
	m := newMeasurement(p)
	if err := m.open(ctx); err != nil {
		return 0, err
	}
	defer m.close()
	sleep(ctx, time.Second) // the server may free what its handshakes used
	return float64(server.memory()-before) / float64(p.Connections), ctx.Err()
}
