package memstore_test

import (
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, memstore.Config{}) })
}

// TestConformanceOfOneShard uses a small store, which has one shard for all buckets.
func TestConformanceOfOneShard(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, memstore.Config{MaxBuckets: 2000}) })
}

func open(t testing.TB, cfg memstore.Config) *memstore.Store {
	t.Helper()
	s, err := memstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
