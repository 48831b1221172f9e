package ratelimit

import (
	"strings"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// localCache has the buckets over their limits, until their windows end. As in envoyproxy/ratelimit, the limits are
// then denied without the store and without counting, also if they are raised meanwhile. It is safe for concurrent use.
// now and note ignore a nil cache.
type localCache struct {
	clock func() int64
	most  int // bytes

	mu    sync.RWMutex
	size  int
	until map[string]int64 // by the key of the bucket, a time of clock
}

const (
	leastLocalCache = 512 << 10 // the smallest size in envoyproxy/ratelimit
	localEntry      = 24        // the bytes of an entry there, beside its key
)

// newLocalCache returns the cache that the config asks for, or nil.
func newLocalCache(cfg *Config) *localCache {
	if !cfg.Strict || cfg.LocalCache <= 0 {
		return nil
	}
	c := &localCache{clock: cfg.Clock, most: max(cfg.LocalCache, leastLocalCache), until: make(map[string]int64)}
	if start := time.Now(); c.clock == nil {
		c.clock = func() int64 { return time.Since(start).Microseconds() }
	}
	return c
}

// now returns the time, or t if there is no cache.
func (c *localCache) now(t int64) int64 {
	if c == nil {
		return t
	}
	return c.clock()
}

// denies returns how long the bucket of a take stays over its limit, in µs; 0 if that is not known, and for a refund.
func (c *localCache) denies(t *bucket.Take, now int64) int64 {
	if t.Refund > 0 {
		return 0
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return max(0, c.until[t.Key]-now)
}

// note notes that a bucket is over its limit until its window ends, or, with 0, that it may not be any more. Beyond the
// size, the cache forgets any other buckets.
func (c *localCache) note(key string, until int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(key)
	if until == 0 {
		return
	}
	c.size += len(key) + localEntry
	for other := range c.until {
		if c.size <= c.most {
			break
		}
		c.forget(other)
	}
	c.until[strings.Clone(key)] = until
}

func (c *localCache) forget(key string) {
	if c.until[key] != 0 {
		delete(c.until, key)
		c.size -= len(key) + localEntry
	}
}
