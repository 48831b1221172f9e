package loadgen

import (
	"context"
	"time"
)

// meter finds what a measurement costs the server and its Redis.
type meter struct {
	ctx    context.Context // not done when the measurement is interrupted
	server *listener
	used   time.Duration // by the server, before
	redis  *RedisMeter   // nil without one
}

func newMeter(ctx context.Context, p Plan) (m *meter, err error) {
	m = &meter{ctx: context.WithoutCancel(ctx), server: findListener(p.Address)}
	if p.Redis != "" {
		if m.redis, err = NewRedisMeter(ctx, p.Redis, p.Timeout); err != nil {
			return nil, err
		}
	}
	m.used, _ = m.server.cpu() // add finds the same error
	return m, nil
}

// add adds the costs to a result. What cannot be found is left out.
func (m *meter) add(r *Result) {
	n := r.Total()
	if n == 0 {
		return
	}
	if used, err := m.server.cpu(); err == nil {
		r.Server = &ServerCost{
			PIDs: m.server.pids, CPU: micros(int64(used-m.used)) / float64(n), Memory: m.server.memory(),
		}
	}
	if m.redis != nil {
		r.Redis, _ = m.redis.Cost(m.ctx, n) // nil if Redis has gone
	}
}

func (m *meter) close() {
	if m.redis != nil {
		m.redis.Close()
	}
}
