package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// redisSettings are the settings of one Redis. The names of their variables begin with prefix.
type redisSettings struct {
	prefix                   string
	url, socket, mode        string
	auth, sentinelAuth       string
	tls                      bool
	poolSize                 int
	timeout                  time.Duration // 0 for the default
	strict                   bool
	caCert, clientCert, key  string
	skipHostnameVerification bool
}

// mainRedis returns the settings of the Redis with API keys and, unless there is a second one, all buckets.
func (s *Settings) mainRedis() redisSettings {
	return redisSettings{
		prefix: "REDIS_", url: s.RedisURL, socket: s.RedisSocket, mode: s.RedisType,
		auth: s.RedisAuth, sentinelAuth: s.RedisSentinelAuth, tls: s.RedisTLS,
		poolSize: s.RedisPoolSize, timeout: s.RedisTimeout, strict: s.strict(),
		caCert: s.RedisCACert, clientCert: s.RedisCert, key: s.RedisKey, skipHostnameVerification: s.RedisSkipHost,
	}
}

// perSecondRedis returns the settings of the Redis for windows shorter than a minute.
func (s *Settings) perSecondRedis() redisSettings {
	return redisSettings{
		prefix: "REDIS_PERSECOND_", url: s.PerSecondURL, socket: s.PerSecondSocket, mode: s.PerSecondType,
		auth: s.PerSecondAuth, sentinelAuth: s.PerSecondSentinelAuth, tls: s.PerSecondTLS,
		poolSize: s.PerSecondPoolSize, timeout: s.PerSecondTimeout, strict: s.strict(),
		caCert: s.RedisCACert, clientCert: s.RedisCert, key: s.RedisKey, skipHostnameVerification: s.RedisSkipHost,
	}
}

// maxCalls is the maximum number of script calls in flight at a Redis, even if REDIS_POOL_SIZE is larger. With more,
// fewer requests would share each call, and Redis runs them one after the other anyway.
const maxCalls = 3

// config returns the address, credentials, TLS and bounds of the Redis.
func (r redisSettings) config(files *certificates) (cfg redisstore.Config, err error) {
	if err := cfg.Mode.UnmarshalText([]byte(r.mode)); err != nil {
		return cfg, fmt.Errorf("%sTYPE: %w", r.prefix, err)
	}
	cfg.URL = r.url
	if r.socket == "unix" && cfg.Mode == redisstore.Single && !strings.Contains(r.url, "://") {
		cfg.URL = "unix://" + r.url
	}
	cfg.Username, cfg.Password = login(r.auth)
	cfg.SentinelUsername, cfg.SentinelPassword = login(r.sentinelAuth)
	cfg.PoolSize, cfg.Timeout, cfg.WholeDeadline = min(r.poolSize, maxCalls), r.timeout, r.strict
	cfg.TLS, err = r.tlsConfig(files)
	return cfg, err
}

// login reads "password" or "user:password".
func login(auth string) (user, password string) {
	if user, password, ok := strings.Cut(auth, ":"); ok {
		return user, password
	}
	return "", auth
}

// tlsConfig returns the TLS configuration of each connection to the Redis. nil means that the URL decides: no TLS, or
// that of rediss://.
func (r redisSettings) tlsConfig(files *certificates) (func() *tls.Config, error) {
	plain := r.caCert == "" && r.clientCert == "" && !r.skipHostnameVerification
	if !r.usesTLS() || plain && !r.tls && r.socket != "tls" {
		return nil, nil //nolint:nilnil // nil is what redisstore takes for no TLS
	}
	client, err := files.client("redis", certs.ClientFiles{
		CA: r.caCert, Cert: r.clientCert, Key: r.key, AnyName: r.skipHostnameVerification,
	})
	if err != nil {
		return nil, fmt.Errorf("REDIS_TLS_CACERT, REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: %w", err)
	}
	return client.Config, nil
}

// usesTLS reports whether connections to the Redis use TLS.
func (r redisSettings) usesTLS() bool {
	return r.tls || r.socket == "tls" || strings.HasPrefix(r.url, "rediss://")
}

// ineffectiveRedis returns a warning for each setting of Redis without effect: TLS for a Redis without TLS, sentinels
// without Sentinel, and a second Redis that is not used. A certificate includes its key. STRICT_ENVIRONMENT does not
// refuse these settings, because envoyproxy/ratelimit ignores them, too.
func (s *Settings) ineffectiveRedis() (warnings []string) {
	if s.BackendType != "redis" {
		return nil
	}
	noTLS := !s.mainRedis().usesTLS() && (!s.PerSecond || !s.perSecondRedis().usesTLS())
	const tlsRemedy = " has no effect without TLS: write rediss:// in REDIS_URL, or set REDIS_TLS=true"
	const secondRemedy = " has no effect without REDIS_PERSECOND=true"
	for _, setting := range []struct {
		ineffective bool
		warning     string
	}{
		{noTLS && s.RedisCACert != "", "REDIS_TLS_CACERT" + tlsRemedy},
		{noTLS && s.RedisCert != "", "REDIS_TLS_CLIENT_CERT" + tlsRemedy},
		{noTLS && s.RedisSkipHost, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" + tlsRemedy},
		{s.RedisType != "SENTINEL" && s.RedisSentinelAuth != "",
			"REDIS_SENTINEL_AUTH has no effect without REDIS_TYPE=SENTINEL"},
		{s.PerSecond && s.PerSecondType != "SENTINEL" && s.PerSecondSentinelAuth != "",
			"REDIS_PERSECOND_SENTINEL_AUTH has no effect without REDIS_PERSECOND_TYPE=SENTINEL"},
		{!s.PerSecond && s.PerSecondURL != "", "REDIS_PERSECOND_URL" + secondRemedy},
		{!s.PerSecond && s.PerSecondAuth != "", "REDIS_PERSECOND_AUTH" + secondRemedy},
	} {
		if setting.ineffective {
			warnings = append(warnings, setting.warning)
		}
	}
	return warnings
}

// firstPing is how long the service waits for Redis at its start.
const firstPing = time.Second

// check pings Redis at the start. It returns only errors that the operator has to fix, such as a wrong password. If
// Redis is unreachable, check returns nil, because the service decides without Redis until it answers.
func (st *stores) check(ctx context.Context, s *Settings) error {
	ctx, cancel := context.WithTimeout(ctx, firstPing)
	defer cancel()
	err := st.redis.Ping(ctx)
	if both, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok && s.PerSecond {
		var mistakes []error
		for _, err := range both.Unwrap() {
			mistakes = append(mistakes, s.mistake(err))
		}
		return errors.Join(mistakes...)
	}
	return s.mistake(err)
}

// mistake returns what the operator has to fix after an error of a ping of one Redis, nil if nothing.
func (s *Settings) mistake(err error) error {
	if err == nil {
		return nil
	}
	prefix := "REDIS_"
	if _, ok := errors.AsType[*redisstore.PerSecondError](err); ok {
		prefix = "REDIS_PERSECOND_"
	}
	if help := redisstore.LoginHelp(err, s.KeyPrefix+"rl:"); help != "" {
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
	every := time.NewTicker(healthInterval)
	defer every.Stop()
	for ctx.Err() == nil {
		ping, cancel := context.WithTimeout(ctx, healthInterval)
		_ = st.redis.Ping(ping) // an error opens the breaker of the node, which redisUp reads
		cancel()
		report(st.redisUp())
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
}
