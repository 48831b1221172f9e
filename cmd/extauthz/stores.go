package main

import (
	"errors"
	"log/slog"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// stores are the one that decides, and the embedded one, which is that or takes over when Redis can not decide.
type stores struct {
	decides ratelimit.Store
	memory  *memstore.Store
	// up reports whether Redis answers; nil without.
	up func() bool
}

func openStores(s *Settings, log *slog.Logger) (*stores, error) {
	cfg := memstore.Config{MaxBuckets: s.MaxBuckets, Logger: log}
	if s.BackendType == "memory" {
		cfg.SnapshotPath = s.SnapshotPath
	}
	memory, err := memstore.New(cfg)
	if err != nil {
		return nil, err
	}
	st := &stores{decides: memory, memory: memory}
	if s.BackendType == "redis" {
		return nil, errors.New("redis: not yet")
	}
	return st, nil
}

// close saves the snapshot, after the last decision.
func (st *stores) close(log *slog.Logger) {
	if err := st.memory.Close(); err != nil {
		log.Error("close the memory store", "error", err)
	}
}

func (st *stores) memoryStats() telemetry.MemoryStats {
	stats := st.memory.Stats()
	return telemetry.MemoryStats{
		Buckets: stats.Buckets, Evicted: stats.Evicted, Expired: stats.Expired, SnapshotFailures: stats.FailedSnapshots,
	}
}

// storeName says where the buckets are, for people.
func (s *Settings) storeName() string {
	if s.BackendType == "redis" {
		return "Redis"
	}
	return "memory"
}
