package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisMeter finds what requests cost a Redis.
type RedisMeter struct {
	client *redis.Client
	before redisTotals
}

// NewRedisMeter begins to measure. The address is host:port, or a URL.
func NewRedisMeter(ctx context.Context, address string, timeout time.Duration) (*RedisMeter, error) {
	o, err := RedisOptions(address)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	o.DialTimeout, o.ReadTimeout, o.PoolSize, o.MaxRetries = timeout, timeout, 1, -1
	m := &RedisMeter{client: redis.NewClient(o)}
	if m.before, err = redisInfo(ctx, m.client); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Cost returns what Redis has used since NewRedisMeter, for each of n requests.
func (m *RedisMeter) Cost(ctx context.Context, n int64) (*RedisCost, error) {
	after, err := redisInfo(ctx, m.client)
	if err != nil {
		return nil, err
	}
	return &RedisCost{
		Commands: (after.commands - m.before.commands - 1) / float64(n), // without INFO
		Scripts:  (after.scripts - m.before.scripts) / float64(n),
		CPU:      (after.cpu - m.before.cpu) * 1e6 / float64(n),
	}, nil
}

// Close closes the connection.
func (m *RedisMeter) Close() { _ = m.client.Close() } // no command is in flight

// RedisOptions reads Plan.Redis: host:port, or a URL. Its error has no part of the text, unlike that of the library.
func RedisOptions(text string) (*redis.Options, error) {
	if !strings.Contains(text, "://") {
		return &redis.Options{Addr: text}, nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, errors.New("want host:port, redis://[user:password@]host:port[/db], rediss://... or unix:///path " +
			"(the value is not shown, since it may hold a password)")
	}
	return o, nil
}

// redisTotals are figures of INFO.
type redisTotals struct{ commands, scripts, cpu float64 } // cpu in s

func redisInfo(ctx context.Context, c *redis.Client) (t redisTotals, err error) {
	info := c.InfoMap(ctx, "all")
	err = info.Err()
	add := func(to *float64, section, name string) {
		text, _, _ := strings.Cut(strings.TrimPrefix(info.Item(section, name), "calls="), ",")
		n, wrong := strconv.ParseFloat(cmp.Or(text, "0"), 64)
		*to, err = *to+n, cmp.Or(err, wrong)
	}
	add(&t.commands, "Stats", "total_commands_processed")
	add(&t.cpu, "CPU", "used_cpu_user")
	add(&t.cpu, "CPU", "used_cpu_sys")
	for _, name := range []string{"evalsha", "eval", "fcall", "evalsha_ro", "eval_ro", "fcall_ro"} {
		add(&t.scripts, "Commandstats", "cmdstat_"+name)
	}
	if err != nil {
		return t, fmt.Errorf("redis %s: INFO: %w", c.Options().Addr, err)
	}
	return t, nil
}
