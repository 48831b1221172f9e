package redisstore

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Connect returns a client of the Redis of cfg, for other data than buckets. The client never repeats a command and
// keeps to the deadline of its context. It connects on first use.
func Connect(cfg Config) (redis.UniversalClient, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(options), nil
}

// options returns the options of the client. The client never repeats a command, because Redis may have charged it
// already. It keeps to the deadline of its context.
func (cfg Config) options() (*redis.UniversalOptions, error) {
	u, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs:                    []string{u.Addr},
		DB:                       u.DB,
		Username:                 cmp.Or(cfg.Username, u.Username),
		Password:                 cmp.Or(cfg.Password, u.Password),
		TLSConfig:                cmp.Or(cfg.TLS, u.TLSConfig),
		Protocol:                 2, // the client needs no push messages
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		DialerRetries:            2, // attempts in all; a failed connection has not charged anything
		DialerRetryTimeout:       time.Millisecond,
		DialTimeout:              cfg.DialTimeout,
		ReadTimeout:              cfg.Timeout,
		WriteTimeout:             cfg.Timeout,
		PoolSize:                 cfg.PoolSize + 1, // one more for Ping
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}
