package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisURL returns REDIS_URL, with the scheme that REDIS_SOCKET_TYPE names if it has none itself.
func (s *Settings) redisURL() string {
	if s.RedisSocket == "unix" && !strings.Contains(s.RedisURL, "://") {
		return "unix://" + s.RedisURL
	}
	return s.RedisURL
}

// redisAuth splits REDIS_AUTH, which is a password or user:password.
func (s *Settings) redisAuth() (user, password string) {
	if user, password, ok := strings.Cut(s.RedisAuth, ":"); ok {
		return user, password
	}
	return "", s.RedisAuth
}

// redisTLS is how to speak TLS with Redis; nil for not at all, or as a rediss:// URL has it.
func (s *Settings) redisTLS() (*tls.Config, error) {
	plain := s.RedisCACert == "" && s.RedisCert == "" && !s.RedisSkipHost
	if !s.RedisTLS && s.RedisSocket != "tls" && (plain || !strings.HasPrefix(s.RedisURL, "rediss://")) {
		return nil, nil //nolint:nilnil // no TLS is an answer, and what redisstore takes for it
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
		cfg.GetClientCertificate = certificate.show
	}
	if s.RedisSkipHost {
		skipHostname(cfg)
	}
	return cfg, nil
}

// clientCertificate is this service's certificate for Redis. It is read anew whenever it is asked for, which is once a connection:
// one that was renewed in its file is in use from the next connection on.
type clientCertificate struct {
	file, key string
	last      atomic.Pointer[tls.Certificate]
}

// read reads the files. Its error leaves the certificate from before in place.
func (c *clientCertificate) read() error {
	pair, err := tls.LoadX509KeyPair(c.file, c.key)
	if err == nil {
		c.last.Store(&pair)
	}
	return err
}

// show is tls.Config.GetClientCertificate. While the files are being written, the certificate from before has to do; when it is
// too old, Redis says so.
func (c *clientCertificate) show(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
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

// quietRedis keeps the Redis client, which has one logger for the whole process, from writing lines of its own form: what
// matters of them reaches the log by the store's hooks.
type quietRedis struct{ log *slog.Logger }

// Printf logs at debug.
func (q quietRedis) Printf(_ context.Context, format string, v ...any) {
	q.log.Debug("redis client", "message", fmt.Sprintf(format, v...))
}

// LogRedis has the Redis client log at debug.
func LogRedis(log *slog.Logger) { redis.SetLogger(quietRedis{log}) }

// firstPing is how long the start waits to say whether Redis answers.
const firstPing = time.Second

// checkRedis says at the start what is wrong with Redis. What only the operator can mend, such as a wrong password, is an error;
// that it cannot be reached is a warning, since the service decides without it until it can.
func (st *stores) checkRedis(ctx context.Context, s *Settings) error {
	if st.redis == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstPing)
	defer cancel()
	err := st.redis.Ping(ctx)
	if err == nil {
		return nil
	}
	for _, code := range []string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR unknown command"} {
		if strings.Contains(err.Error(), code) {
			return fmt.Errorf("%w\n(set REDIS_AUTH to the password, or user:password; the user needs "+
				"ACL SETUSER <user> on ><password> ~%s* +evalsha +eval +script|load +get +set +del +time +ping +hello +auth +hget +hscan +hlen +hstrlen)", err, s.KeyPrefix+"rl:")
		}
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return fmt.Errorf("%w (REDIS_TLS_CACERT names the CA to trust)", err)
	}
	return nil // the hooks have said it
}
