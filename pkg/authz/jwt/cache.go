package jwt

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// cacheSize is how many verified tokens are cached. A token longer than 1 KiB counts as several.
const cacheSize = 1 << 16

// shards is a power of two, well above the number of CPUs that look up tokens at the same time.
const shards = 64

// cache holds the identities of verified tokens, by the hash of the token. Only tokens with a good signature are added,
// so that only an issuer can fill it. Each shard has a young and an old generation. When the young one fills half of
// the shard, it replaces the old one. A lookup moves a token from the old to the young one. So tokens without recent
// use are dropped, as in an LRU cache, at the cost of a map. It is safe for concurrent use.
type cache struct{ shards [shards]shard }

type shard struct {
	mu         sync.Mutex
	young, old map[cacheKey]cached
	weight     int // of young
	capacity   int // of a generation
}

// cacheKey is a token, and the settings with which it was checked.
type cacheKey struct {
	by    *validator
	token [sha256.Size]byte
}

// cached is the identity of a token. It is valid until expires, as long as the issuer has these keys.
type cached struct {
	identity credential.Identity
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

// get returns the identity of a token, if the cache has it and it is still valid.
func (c *cache) get(k cacheKey, keys version, now time.Time) (credential.Identity, bool) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.young[k]
	if !ok {
		if entry, ok = s.old[k]; !ok {
			return credential.Identity{}, false
		}
		delete(s.old, k)
		s.add(k, entry)
	}
	if entry.keys != keys || !now.Before(entry.expires) {
		delete(s.young, k)
		s.weight -= entry.weight
		return credential.Identity{}, false
	}
	return entry.identity, true
}

// put adds a token.
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
