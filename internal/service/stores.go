package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// stores are the store that decides, and the embedded one, which is the same or takes over when Redis cannot decide.
type stores struct {
	decides ratelimit.Store
	memory  *memstore.Store
	redis   *redisstore.Store // nil without
	down    atomic.Bool       // whether Redis does not answer
	// certificate is what the service shows Redis; nil for none.
	certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// openStores returns an error only if the operator has to fix something: the service starts without Redis, and on_store_error decides
// until Redis answers.
func openStores(ctx context.Context, s *Settings, log *slog.Logger) (*stores, error) {
	cfg := memstore.Config{MaxBuckets: s.MaxBuckets, Logger: log}
	if s.BackendType == "memory" {
		cfg.SnapshotPath = s.SnapshotPath
	}
	memory, err := memstore.New(cfg)
	if err != nil {
		return nil, err
	}
	st := &stores{decides: memory, memory: memory}
	if s.BackendType == "memory" {
		return st, nil
	}
	if err := st.openRedis(ctx, s, log); err != nil {
		st.close(log)
		return nil, err
	}
	return st, nil
}

// maxCalls is how many script calls may be on the wire at once, whatever REDIS_POOL_SIZE allows: with more, fewer requests
// share each, and Redis does one after the other anyway.
const maxCalls = 3

func (st *stores) openRedis(ctx context.Context, s *Settings, log *slog.Logger) (err error) {
	cfg, err := s.redisConfig()
	if err != nil {
		return err
	}
	if cfg.TLS != nil {
		st.certificate = cfg.TLS.GetClientCertificate
	}
	cfg.PoolSize, cfg.Timeout = min(s.RedisPoolSize, maxCalls), s.RedisTimeout
	cfg.Up = func(cause error) {
		st.down.Store(cause != nil)
		if cause != nil {
			log.Error("redis does not answer: on_store_error decides until it does", "error", cause)
			return
		}
		log.Warn("redis answers again")
	}
	if st.redis, err = redisstore.New(cfg); err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	st.decides = st.redis
	return st.check(ctx, s)
}

// close saves the snapshot, after the last decision.
func (st *stores) close(log *slog.Logger) {
	if st.redis != nil {
		if err := st.redis.Close(); err != nil {
			log.Error("close the connections to redis", "error", err)
		}
	}
	if err := st.memory.Close(); err != nil {
		log.Error("close the memory store", "error", err)
	}
}
