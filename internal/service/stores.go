package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// stores has the store that decides, and its fallback. Without Redis, both are the memory store.
type stores struct {
	*process
	decides, fallback ratelimit.Store
	memory            *memstore.Store   // nil with Redis
	redis             *redisstore.Store // nil without Redis
	known             *nearstore.Store  // nil without Redis
	pools             map[string]func() (opened, closed uint64)
}

// openStores returns only errors that the operator has to fix. Without Redis, on_store_error decides until it answers.
func openStores(ctx context.Context, p *process) (*stores, error) {
	if s := p.Settings; !s.UsesRedis() {
		memory, err := memstore.New(memstore.Config{
			MaxBuckets: s.Memory.MaxBuckets, MaxHolds: s.Memory.MaxHolds, SnapshotPath: s.Memory.SnapshotPath,
			Clock: p.Clock, Logger: p.log,
		})
		return &stores{process: p, decides: memory, fallback: memory, memory: memory}, err
	}
	st := &stores{process: p}
	if err := st.openRedis(ctx); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

func (st *stores) openRedis(ctx context.Context) error {
	s, log := st.Settings, st.log
	cfg, err := bucketsConfig(s, st.files)
	if err != nil {
		return err
	}
	redisstore.Log(log)
	st.pools = map[string]func() (opened, closed uint64){}
	for name, of := range map[string]*redisstore.Config{"redis_pool": &cfg, "redis_per_second_pool": cfg.PerSecond} {
		if of != nil {
			of.Connections = new(redisstore.Connections)
			st.pools[name] = of.Connections.Counts
		}
	}
	cfg.Took = telemetry.NewRedisTimes(st.registry)
	cfg.Panicked = func(value any) { st.bugs.caught("a decision of Redis", value) }
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
	st.known, err = nearstore.New(nearstore.Config{
		Shared: st.redis, MaxBuckets: s.Memory.MaxBuckets, MaxHolds: s.Memory.MaxHolds,
		DenialCache: s.Redis.DenialCache, Logger: log, Panicked: cfg.Panicked,
	})
	if err != nil {
		return err
	}
	st.decides, st.fallback = st.known, st.known.Local()
	if err := st.pingAtStart(ctx); err != nil {
		return err
	}
	switch {
	case s.Redis.FallbackReplicas > 0:
		st.known.SetReplicas(s.Redis.FallbackReplicas)
	case !s.Strict(): // otherwise nothing is decided without Redis
		st.redis.CountReplicas(st.counted)
	}
	return nil
}

// counted takes over a number of replicas.
func (st *stores) counted(n int, err error) {
	if err == nil {
		st.known.SetReplicas(n)
		return
	}
	st.log.Warn("cannot count the replicas that share Redis; each divides limits by the number that it has read last, "+
		"at first 1, while Redis does not decide: fix the cause, or set LOCAL_FALLBACK_REPLICAS",
		"error", err, "help", redisstore.LoginHelp(err, st.Settings.Limits.KeyPrefix+"rl:"))
}

// bucketsConfig returns how to reach the Redis, or the two, that have the buckets.
func bucketsConfig(s *settings.Settings, files *certificates) (redisstore.Config, error) {
	cfg, err := redisConfig(s, &s.Redis.Main, files)
	if err != nil {
		return cfg, err
	}
	if s.Redis.UsePerSecond {
		second, err := redisConfig(s, &s.Redis.PerSecond, files)
		if err != nil {
			return cfg, err
		}
		cfg.PerSecond = &second
	}
	cfg.KeyPrefix = s.Limits.KeyPrefix
	return cfg, nil
}

// close closes the stores. It must run after the last decision, because it writes the snapshot.
func (st *stores) close() {
	if st.known != nil {
		_ = st.known.Close() // it has no errors
	}
	if st.redis != nil {
		if err := st.redis.Close(); err != nil {
			st.log.Error("cannot close the connections to Redis", "error", err)
		}
	}
	if st.memory != nil {
		if err := st.memory.Close(); err != nil {
			st.log.Error("cannot close the memory store", "error", err)
		}
	}
}
