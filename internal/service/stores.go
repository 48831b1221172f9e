package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// stores has the store that decides, and the memory store. They are the same without Redis; else the memory store
// decides when Redis cannot.
type stores struct {
	decides ratelimit.Store
	memory  *memstore.Store
	redis   *redisstore.Store // nil without Redis
	down    atomic.Bool       // Redis does not answer
	// certificate returns the client certificate for Redis; nil without one.
	certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// openStores returns only errors that the operator has to fix. If Redis is unreachable, the service starts, and
// on_store_error decides until Redis answers.
func openStores(ctx context.Context, s *Settings, log *slog.Logger, r prometheus.Registerer) (*stores, error) {
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
	if err := st.openRedis(ctx, s, log, r); err != nil {
		st.close(log)
		return nil, err
	}
	return st, nil
}

// maxCalls is the maximum number of script calls in flight, even if REDIS_POOL_SIZE is larger. With more, fewer
// requests would share each call, and Redis runs them one after the other anyway.
const maxCalls = 3

func (st *stores) openRedis(ctx context.Context, s *Settings, log *slog.Logger, r prometheus.Registerer) (err error) {
	cfg, err := s.redisConfig()
	if err != nil {
		return err
	}
	if cfg.TLS != nil {
		st.certificate = cfg.TLS.GetClientCertificate
	}
	cfg.PoolSize, cfg.Timeout = min(s.RedisPoolSize, maxCalls), s.RedisTimeout
	cfg.Took = telemetry.NewRedisTimes(r)
	cfg.Up = func(_ string, cause error) {
		st.down.Store(cause != nil)
		if cause != nil {
			log.Error("Redis does not answer; on_store_error decides each request until it does", "error", cause)
			return
		}
		log.Warn("Redis answers again")
	}
	if st.redis, err = redisstore.New(cfg); err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	st.decides = st.redis
	return st.check(ctx, s)
}

// close closes the stores. It must run after the last decision, because it writes the snapshot.
func (st *stores) close(log *slog.Logger) {
	if st.redis != nil {
		if err := st.redis.Close(); err != nil {
			log.Error("cannot close the connections to Redis", "error", err)
		}
	}
	if err := st.memory.Close(); err != nil {
		log.Error("cannot close the memory store", "error", err)
	}
}
