package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

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
}

// openStores returns only errors that the operator has to fix. If Redis is unreachable, the service starts, and
// on_store_error decides until Redis answers.
func openStores(ctx context.Context, s *Settings, files *certificates, log *slog.Logger,
	r prometheus.Registerer) (*stores, error) {
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
	if err := st.openRedis(ctx, s, files, log, r); err != nil {
		st.close(log)
		return nil, err
	}
	return st, nil
}

func (st *stores) openRedis(ctx context.Context, s *Settings, files *certificates, log *slog.Logger,
	r prometheus.Registerer) error {
	cfg, err := s.mainRedis().config(files)
	if err != nil {
		return err
	}
	if s.PerSecond {
		second, err := s.perSecondRedis().config(files)
		if err != nil {
			return err
		}
		cfg.PerSecond = &second
	}
	redisstore.Log(log)
	cfg.KeyPrefix = s.KeyPrefix
	cfg.Took = telemetry.NewRedisTimes(r)
	cfg.Up = func(node string, cause error) {
		if cause != nil {
			log.Error("Redis does not answer; on_store_error decides each request that needs it until it does",
				"node", node, "error", cause)
			return
		}
		log.Warn("Redis answers again", "node", node)
	}
	st.redis, err = redisstore.New(cfg)
	if second, ok := errors.AsType[*redisstore.PerSecondError](err); ok {
		return fmt.Errorf("REDIS_PERSECOND_URL: %w", second)
	}
	if err != nil {
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
