package redisstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// options are those of the client. It never repeats a command by itself, because Redis may have charged it already, and it
// keeps to the deadline it is given.
func (cfg Config) options() (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
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
	}
	switch {
	case cfg.URL == "":
		o.Addrs = []string{"localhost:6379"}
	case strings.Contains(cfg.URL, "://"):
		u, err := redis.ParseURL(cfg.URL)
		if parse, ok := errors.AsType[*url.Error](err); ok {
			err = parse.Err // without the URL, which may hold a password
		}
		if err != nil {
			return nil, fmt.Errorf("the URL of redis: %w", err)
		}
		o.Addrs, o.DB, o.Username, o.Password, o.TLSConfig = []string{u.Addr}, u.DB, u.Username, u.Password, u.TLSConfig
	case strings.ContainsAny(cfg.URL, ":/"):
		o.Addrs = []string{cfg.URL}
	default:
		o.Addrs = []string{net.JoinHostPort(cfg.URL, "6379")}
	}
	if cfg.Username != "" {
		o.Username = cfg.Username
	}
	if cfg.Password != "" {
		o.Password = cfg.Password
	}
	if cfg.DB != 0 {
		o.DB = cfg.DB
	}
	if cfg.TLS != nil {
		o.TLSConfig = cfg.TLS
	}
	return o, nil
}
