package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

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
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.RedisCACert != "" {
		pem, err := os.ReadFile(s.RedisCACert)
		if err != nil {
			return nil, fmt.Errorf("REDIS_TLS_CACERT: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("REDIS_TLS_CACERT: no certificate in %s", s.RedisCACert)
		}
	}
	if s.RedisCert != "" {
		certificate := &clientCertificate{file: s.RedisCert, key: s.RedisKey}
		if err := certificate.read(); err != nil {
			return nil, fmt.Errorf("REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: %w", err)
		}
		cfg.GetClientCertificate = certificate.get
	}
	if s.RedisSkipHost {
		skipHostname(cfg)
	}
	return cfg, nil
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

// clientCertificate is the client certificate of this service for Redis. It is read for each connection, so that a new
// connection uses a certificate that was renewed in its file.
type clientCertificate struct {
	file, key string
	last      atomic.Pointer[tls.Certificate]
}

// read reads the files. After an error, the previous certificate stays.
func (c *clientCertificate) read() error {
	pair, err := tls.LoadX509KeyPair(c.file, c.key)
	if err == nil {
		c.last.Store(&pair)
	}
	return err
}

// get implements tls.Config.GetClientCertificate. While the files are being written, it returns the previous
// certificate.
func (c *clientCertificate) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	_ = c.read()
	return c.last.Load(), nil
}

// skipHostname verifies the chain of the server's certificate as usual, but not the name in it.
func skipHostname(cfg *tls.Config) {
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(c tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
		for _, cert := range c.PeerCertificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		_, err := c.PeerCertificates[0].Verify(o)
		return err
	}
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
