package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Connect returns a client of the Redis of cfg, for other data than buckets. Except for a cluster, the client never
// repeats a command. It keeps to the deadline of its context, and connects on first use. A reply has at most 64 MiB.
func Connect(cfg Config) (redis.UniversalClient, error) {
	cfg.DialTimeout = cfg.withDefaults().DialTimeout
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	// The client of sentinels that the library makes asks them for RESP3.
	options.Dialer = linking(options, bound{most: mostPage, resp3: cfg.Mode == Sentinel}, nil)
	if cfg.Mode != Cluster {
		return redis.NewUniversalClient(options), nil
	}
	cluster := options.Cluster()
	cluster.ClusterStateReloadInterval = time.Second // for a master that does not answer, its replica takes over
	return redis.NewClusterClient(cluster), nil
}

// options returns the options of a client. Except for a cluster, the client never repeats a command, because Redis may
// have charged it already. It keeps to the deadline of its context.
func (cfg Config) options() (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		Username:                 cfg.Username,
		Password:                 cfg.Password,
		SentinelUsername:         cfg.SentinelUsername,
		SentinelPassword:         cfg.SentinelPassword,
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
	}
	if cfg.TLS != nil {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			d := tls.Dialer{NetDialer: &net.Dialer{Timeout: cfg.DialTimeout}, Config: cfg.TLS()}
			return d.DialContext(ctx, network, addr)
		}
	}
	var err error
	switch cfg.Mode {
	case Sentinel:
		o.MasterName, o.Addrs, err = parseSentinels(cfg.URL)
		return o, err
	case Cluster:
		addrs, ok := parseAddresses(cfg.URL)
		if !ok {
			return nil, errCluster
		}
		o.Addrs, o.IsClusterMode = addrs, true
		return o, nil
	case Single:
	}
	u, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	o.Addrs, o.DB = []string{u.Addr}, u.DB
	o.Username, o.Password = cmp.Or(cfg.Username, u.Username), cmp.Or(cfg.Password, u.Password)
	o.TLSConfig = u.TLSConfig // of rediss://; Dialer does not use it
	return o, nil
}
