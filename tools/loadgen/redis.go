package loadgen

import (
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
	client, err := redisClient(address, timeout)
	if err != nil {
		return nil, err
	}
	m := &RedisMeter{client: client}
	if m.before, err = redisInfo(ctx, client); err != nil {
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
		Commands: float64(after.commands-m.before.commands-1) / float64(n), // without INFO
		Scripts:  float64(after.scripts-m.before.scripts) / float64(n),
		CPU:      (after.cpu - m.before.cpu) * 1e6 / float64(n),
	}, nil
}

// Close closes the connection.
func (m *RedisMeter) Close() { _ = m.client.Close() } // no command is in flight

// RedisAddress returns the host:port of Plan.Redis, or unix:PATH.
func RedisAddress(text string) (string, error) {
	o, err := redisOptions(text)
	if err != nil {
		return "", err
	}
	if o.Network == "unix" {
		return "unix:" + o.Addr, nil
	}
	return o.Addr, nil
}

// redisOptions reads host:port, or a URL. Its error has no part of the text, and no error of the library, which might.
func redisOptions(text string) (*redis.Options, error) {
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

// redisClient connects to host:port, or to a URL.
func redisClient(address string, timeout time.Duration) (*redis.Client, error) {
	o, err := redisOptions(address)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
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
