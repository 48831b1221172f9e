package redisstore

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Connect returns a client of the Redis that cfg says, for other things that are kept there: it never repeats a command, and keeps
// to the deadline it is given. It connects when it is first used.
func Connect(cfg Config) (redis.UniversalClient, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(options), nil
}

// options are those of the client. It never repeats a command by itself, because Redis may have charged it already, and it
// keeps to the deadline it is given.
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
		Protocol:                 2, // nothing is pushed to us
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		DialerRetries:            2, // in all; a connection that was not made has not charged anything
		DialerRetryTimeout:       time.Millisecond,
		DialTimeout:              cfg.DialTimeout,
		ReadTimeout:              cfg.Timeout,
		WriteTimeout:             cfg.Timeout,
		PoolSize:                 cfg.PoolSize + 1, // and one for Ping
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}
