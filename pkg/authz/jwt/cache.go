package jwt

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// shards is a power of two, well above the number of CPUs that look tokens up at the same time.
const shards = 64

// cache knows verified tokens by their hash, never by themselves. Only what has a good signature gets in, so that nobody but an
// issuer can fill it. It is bounded: each shard has a young and an old generation; when the young one is half of the shard it
// becomes the old one, and the old one goes. A token that is asked for in the old one moves to the young one. This drops what
// has not been asked for in a while, as LRU would, at the cost of a map. Its methods are safe for concurrent use.
type cache struct{ shards [shards]shard }

type shard struct {
	mu         sync.Mutex
	young, old map[cacheKey]cached
	weight     int // of young
	capacity   int // of a generation
}

// cacheKey is a token, and the settings that it was checked by.
type cacheKey struct {
	by    *validator
	token [sha256.Size]byte
}

// cached is what is known of a token: it is good until expires, as long as the issuer has these keys.
type cached struct {
	identity authz.Identity
	keys     version
	expires  time.Time
	weight   int
}

func newCache(capacity int) *cache {
	c := &cache{}
	for i := range c.shards {
		c.shards[i].capacity = max(capacity/shards/2, 1)
		c.shards[i].young = map[cacheKey]cached{}
	}
	return c
}

func (c *cache) shard(k cacheKey) *shard { return &c.shards[k.token[0]%shards] }

// get returns whose token it is, if that is known and still true.
func (c *cache) get(k cacheKey, keys version, now time.Time) (authz.Identity, bool) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.young[k]
	if !ok {
		if entry, ok = s.old[k]; !ok {
			return authz.Identity{}, false
		}
		delete(s.old, k)
		s.add(k, entry)
	}
	if entry.keys != keys || !now.Before(entry.expires) {
		delete(s.young, k)
		s.weight -= entry.weight
		return authz.Identity{}, false
	}
	return entry.identity, true
}

// put remembers a token.
func (c *cache) put(k cacheKey, entry cached) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.old, k)
	s.weight -= s.young[k].weight
	s.add(k, entry)
}

// add puts an entry into the young generation. The caller holds the lock.
func (s *shard) add(k cacheKey, entry cached) {
	if s.weight > 0 && s.weight+entry.weight > s.capacity {
		s.old, s.young, s.weight = s.young, make(map[cacheKey]cached, len(s.young)), 0
	}
	s.young[k] = entry
	s.weight += entry.weight
}
