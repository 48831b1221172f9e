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

// redisConfig returns the address, credentials and TLS of Redis.
func (s *Settings) redisConfig() (cfg redisstore.Config, err error) {
	cfg.URL, cfg.Password = s.RedisURL, s.RedisAuth
	if s.RedisSocket == "unix" && !strings.Contains(s.RedisURL, "://") {
		cfg.URL = "unix://" + s.RedisURL
	}
	if user, password, ok := strings.Cut(s.RedisAuth, ":"); ok {
		cfg.Username, cfg.Password = user, password
	}
	cfg.TLS, err = s.redisTLS()
	return cfg, err
}

// redisTLS returns the TLS configuration for Redis. nil means that the URL decides: no TLS, or that of rediss://.
func (s *Settings) redisTLS() (*tls.Config, error) {
	plain := s.RedisCACert == "" && s.RedisCert == "" && !s.RedisSkipHost
	if !s.redisUsesTLS() || plain && !s.RedisTLS && s.RedisSocket != "tls" {
		return nil, nil //nolint:nilnil // nil is what redisstore takes for no TLS
	}
	client, err := certs.NewClient(certs.ClientFiles{
		CA: s.RedisCACert, Cert: s.RedisCert, Key: s.RedisKey, AnyName: s.RedisSkipHost,
	})
	if err != nil {
		return nil, fmt.Errorf("REDIS_TLS_CACERT, REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: %w", err)
	}
	return client.Config(), nil
}

// redisUsesTLS reports whether connections to Redis use TLS.
func (s *Settings) redisUsesTLS() bool {
	return s.RedisTLS || s.RedisSocket == "tls" || strings.HasPrefix(s.RedisURL, "rediss://")
}

// ineffectiveTLS returns a warning for each setting of TLS for a Redis without TLS. A certificate includes its key.
// STRICT_ENVIRONMENT does not refuse these settings, because envoyproxy/ratelimit ignores them, too.
func (s *Settings) ineffectiveTLS() (warnings []string) {
	if s.BackendType != "redis" || s.redisUsesTLS() {
		return nil
	}
	for _, setting := range []struct {
		set  bool
		name string
	}{
		{s.RedisCACert != "", "REDIS_TLS_CACERT"},
		{s.RedisCert != "", "REDIS_TLS_CLIENT_CERT"},
		{s.RedisSkipHost, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"},
	} {
		if setting.set {
			warnings = append(warnings, setting.name+" has no effect without TLS: write rediss:// in REDIS_URL, or set "+
				"REDIS_TLS=true")
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
	if err == nil {
		return nil
	}
	if help := redisstore.LoginHelp(err, s.KeyPrefix+"rl:"); help != "" {
		return fmt.Errorf("%w\n(set REDIS_AUTH to the password, or user:password; %s)", err, help)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w (set REDIS_TLS_CACERT to the CA that signed it)", err)
	}
	return nil // Config.Up of the store has logged it
}
