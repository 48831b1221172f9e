package ratelimit

import (
	"strings"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// localCache has the buckets over their limits, until their windows end. As in envoyproxy/ratelimit, the limits are
// then denied without the store and without counting, also if they are raised meanwhile. It is safe for concurrent use.
// A nil cache is always empty.
type localCache struct {
	clock func() int64
	most  int // bytes

	mu    sync.RWMutex
	size  int
	until map[string]int64 // by the key of the bucket, a time of clock
}

const (
	// leastLocalCache is the smallest size of the cache in envoyproxy/ratelimit.
	leastLocalCache = 512 << 10
	// localEntry is how many bytes an entry has there, beside its key.
	localEntry = 24
)

func newLocalCache(size int, clock func() int64) *localCache {
	c := &localCache{clock: clock, most: max(size, leastLocalCache), until: make(map[string]int64)}
	if clock == nil {
		start := time.Now()
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

// denies returns how long the bucket of a take stays over its limit, in µs; 0 if it is not known to be over. A refund
// is never denied.
func (c *localCache) denies(t *bucket.Take, now int64) int64 {
	if c == nil || t.Refund > 0 {
		return 0
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return max(0, c.until[t.Key]-now)
}

// add notes that a bucket is over its limit until its window ends. Beyond the size, it forgets any other buckets.
func (c *localCache) add(key string, until int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until[key] == 0 {
		for other := range c.until {
			if c.size+len(key)+localEntry <= c.most {
				break
			}
			c.remove(other)
		}
		c.size += len(key) + localEntry
	}
	key = strings.Clone(key) // also for a known key: the map keeps the text of the last assignment
	c.until[key] = max(c.until[key], until)
}

// drop forgets a bucket, because a refund has changed it.
func (c *localCache) drop(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until[key] != 0 {
		c.remove(key)
	}
}

func (c *localCache) remove(key string) {
	delete(c.until, key)
	c.size -= len(key) + localEntry
}
