package loadgen

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// meter finds what a measurement costs the server and its Redis.
type meter struct {
	ctx    context.Context // not done when the measurement is interrupted
	server *listener
	used   time.Duration // by the server, before
	redis  *redis.Client // nil without one
	before redisTotals
}

func newMeter(ctx context.Context, p Plan) (*meter, error) {
	m := &meter{ctx: context.WithoutCancel(ctx), server: findListener(p.Address)}
	if p.Redis != "" {
		var err error
		if m.redis, err = redisClient(p.Redis, p.Timeout); err == nil {
			m.before, err = redisInfo(m.ctx, m.redis)
		}
		if err != nil {
			m.close()
			return nil, err
		}
	}
	m.used, _ = m.server.cpu() // add finds the same error
	return m, nil
}

// add adds the costs to a result. What cannot be found is left out.
func (m *meter) add(r *Result) {
	n := float64(r.Total())
	if n == 0 {
		return
	}
	if used, err := m.server.cpu(); err == nil {
		r.Server = &ServerCost{
			PIDs: m.server.pids, CPU: micros(int64(used-m.used)) / n, Memory: m.server.memory(),
		}
	}
	if m.redis == nil {
		return
	}
	if after, err := redisInfo(m.ctx, m.redis); err == nil {
		r.Redis = &RedisCost{
			Commands: float64(after.commands-m.before.commands-1) / n, // without INFO
			Scripts:  float64(after.scripts-m.before.scripts) / n,
			CPU:      (after.cpu - m.before.cpu) * 1e6 / n,
		}
	}
}

func (m *meter) close() {
	if m.redis != nil {
		_ = m.redis.Close() // no command is in flight
	}
}

// redisClient connects to host:port, or to a URL.
func redisClient(address string, timeout time.Duration) (*redis.Client, error) {
	o := &redis.Options{Addr: address}
	if strings.Contains(address, "://") {
		var err error
		if o, err = redis.ParseURL(address); err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
	}
	o.DialTimeout, o.ReadTimeout, o.PoolSize, o.MaxRetries = timeout, timeout, 1, -1
	return redis.NewClient(o), nil
}

// redisTotals are figures of INFO.
type redisTotals struct {
	commands, scripts int64
	cpu               float64 // s
}

func redisInfo(ctx context.Context, c *redis.Client) (t redisTotals, err error) {
	text, err := c.Info(ctx, "all").Result()
	if err != nil {
		return t, fmt.Errorf("redis %s: INFO: %w", c.Options().Addr, err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "total_commands_processed":
			t.commands, err = strconv.ParseInt(value, 10, 64)
		case "used_cpu_user", "used_cpu_sys":
			var seconds float64
			seconds, err = strconv.ParseFloat(value, 64)
			t.cpu += seconds
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall", "cmdstat_evalsha_ro", "cmdstat_eval_ro", "cmdstat_fcall_ro":
			var calls int64
			count, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			calls, err = strconv.ParseInt(count, 10, 64)
			t.scripts += calls
		}
		if err != nil {
			return t, fmt.Errorf("redis %s: INFO: %s: %w", c.Options().Addr, name, err)
		}
	}
	return t, nil
}
