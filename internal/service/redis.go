package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// maxCalls is the maximum number of script calls in flight at a Redis, even if REDIS_POOL_SIZE is larger. With more,
// fewer requests would share each call, and Redis runs them one after the other anyway.
const maxCalls = 3

// redisConfig returns the address, credentials, TLS and bounds of a Redis: s.Redis.Main or s.Redis.PerSecond.
func redisConfig(s *settings.Settings, r *settings.RedisServer, files *certificates) (cfg redisstore.Config,
	err error) {
	if err := cfg.Mode.UnmarshalText([]byte(r.Type)); err != nil {
		return cfg, err // settings.Read accepts only the words of a Mode
	}
	cfg.URL = r.URL
	if r.SocketType == "unix" && cfg.Mode == redisstore.Single && !strings.Contains(r.URL, "://") {
		cfg.URL = "unix://" + r.URL
	}
	cfg.Username, cfg.Password = login(r.Auth)
	cfg.SentinelUsername, cfg.SentinelPassword = login(r.SentinelAuth)
	cfg.PoolSize, cfg.Timeout, cfg.WholeDeadline = min(r.PoolSize, maxCalls), r.Timeout, s.Strict()
	cfg.TLS, err = redisTLS(&s.Redis, r, files)
	return cfg, err
}

// login reads "password" or "user:password".
func login(auth string) (user, password string) {
	if user, password, ok := strings.Cut(auth, ":"); ok {
		return user, password
	}
	return "", auth
}

// redisTLS returns the TLS configuration of each connection to a Redis; nil if its URL decides that alone.
func redisTLS(shared *settings.Redis, r *settings.RedisServer, files *certificates) (func() *tls.Config, error) {
	plain := shared.CACert == "" && shared.Cert == "" && !shared.SkipHostname
	if !r.UsesTLS() || plain && !r.TLS && r.SocketType != "tls" {
		return nil, nil //nolint:nilnil // nil is what redisstore takes for no TLS
	}
	client, err := files.client("redis", certs.ClientFiles{
		CA: shared.CACert, Cert: shared.Cert, Key: shared.Key, AnyName: shared.SkipHostname,
	})
	if err != nil {
		return nil, fmt.Errorf("REDIS_TLS_CACERT, REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: %w", err)
	}
	return client.Config, nil
}

// pingAtStart pings Redis. It returns only errors that the operator has to fix, such as a wrong password. If Redis is
// unreachable, it returns nil, because the service decides without Redis until it answers.
func (st *stores) pingAtStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := st.redis.Ping(ctx)
	both, ok := err.(interface{ Unwrap() []error }) // Ping joins the errors of two Redis itself
	if !ok || !st.Settings.Redis.UsePerSecond {
		return redisMistake(st.Settings, err)
	}
	var mistakes []error
	for _, err := range both.Unwrap() {
		mistakes = append(mistakes, redisMistake(st.Settings, err))
	}
	return errors.Join(mistakes...)
}

// redisMistake returns what the operator has to fix after an error of a ping of one Redis, nil if nothing.
func redisMistake(s *settings.Settings, err error) error {
	if err == nil {
		return nil
	}
	prefix := "REDIS_"
	if _, ok := errors.AsType[*redisstore.PerSecondError](err); ok {
		prefix = "REDIS_PERSECOND_"
	}
	if help := redisstore.LoginHelp(err, s.Limits.KeyPrefix+"rl:"); help != "" {
		return fmt.Errorf("%w\n(set %sAUTH to the password, or user:password; %s)", err, prefix, help)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w (set REDIS_TLS_CACERT to the CA that signed it)", err)
	}
	if redisstore.IsNoMaster(err) {
		return fmt.Errorf("%w (the sentinels know no master of the name with which %sURL begins)", err, prefix)
	}
	if redisstore.IsNoCluster(err) {
		return fmt.Errorf("%w (this Redis is no cluster: set %sTYPE=SINGLE)", err, prefix)
	}
	return nil // Config.Up of the store has logged it
}

// watched reports whether this replica accepts requests only while Redis answers.
func (st *stores) watched() bool { return st.redis != nil && st.Settings.Redis.HealthCheck }

// redisUp reports whether each Redis that has buckets answers, or at least one node of it if it is a cluster.
func (st *stores) redisUp() bool {
	up := map[bool]bool{} // by NodeState.PerSecond
	for _, n := range st.redis.Nodes() {
		up[n.PerSecond] = up[n.PerSecond] || n.Up
	}
	for _, answers := range up {
		if !answers {
			return false
		}
	}
	return true
}

// healthInterval is the time between two checks of REDIS_HEALTH_CHECK_ACTIVE_CONNECTION.
const healthInterval = time.Second

// watch pings Redis until ctx is done, and reports each time whether it answers.
func (st *stores) watch(ctx context.Context, report func(up bool)) {
	poll.Every(ctx, healthInterval, func() {
		ping, cancel := context.WithTimeout(ctx, healthInterval)
		defer cancel()
		_ = st.redis.Ping(ping) // an error opens the breaker of the node, which redisUp reads
		report(st.redisUp())
	})
}

// RedisConfig returns how a command reaches the Redis of the settings, without the log of the client library.
func RedisConfig(s *settings.Settings) (redisstore.Config, error) {
	log := slog.New(slog.DiscardHandler)
	redisstore.Log(log)
	return bucketsConfig(s, newCertificates(log))
}
