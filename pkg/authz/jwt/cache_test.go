package jwt

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

func tokenKey(n int) cacheKey {
	return cacheKey{token: sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))}
}

// TestCacheIsBounded puts more tokens into a cache than fit, of one size and of several sizes.
func TestCacheIsBounded(t *testing.T) {
	now := time.Now()
	for name, weight := range map[string]func() int{
		"small": func() int { return 1 }, "up to 8 kB": func() int { return 1 + rand.IntN(8) },
	} {
		c := newCache(1 << 10)
		for n := range 1 << 14 {
			c.put(tokenKey(n), cached{expires: now.Add(time.Hour), weight: weight()})
			if _, ok := c.get(tokenKey(n), version{}, now); !ok {
				t.Fatalf("%s: token %d is not known just after it was put", name, n)
			}
		}
		held := 0
		for i := range c.shards {
			for _, generation := range []map[cacheKey]cached{c.shards[i].young, c.shards[i].old} {
				for _, entry := range generation {
					held += entry.weight
				}
			}
		}
		if held > 1<<10 || held < 1<<8 {
			t.Errorf("%s: the weight is %d, want up to %d", name, held, 1<<10)
		}
		if c.len() > held {
			t.Errorf("%s: %d tokens", name, c.len())
		}
	}
}

// TestCacheKeepsWhatIsUsed: a token that is used again and again stays in the cache while many others are added.
func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c, now := newCache(1<<10), time.Now()
	mine := tokenKey(-1)
	c.put(mine, cached{identity: credential.Identity{Owner: "ann"}, expires: now.Add(time.Hour), weight: 1})
	for n := range 1 << 14 {
		c.put(tokenKey(n), cached{expires: now.Add(time.Hour), weight: 1})
		if id, ok := c.get(mine, version{}, now); !ok || id.Owner != "ann" {
			t.Fatalf("forgotten after %d others", n)
		}
	}
}

func TestCacheForgets(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name string
		key  cacheKey
		keys version
		at   time.Time
		want bool
	}{
		{"the same", tokenKey(1), version{1}, now, true},
		{"just before it expires", tokenKey(1), version{1}, now.Add(time.Minute - 1), true},
		{"when it expires", tokenKey(1), version{1}, now.Add(time.Minute), false},
		{"other keys", tokenKey(1), version{2}, now, false},
		{"another token", tokenKey(2), version{1}, now, false},
		{"other settings", cacheKey{by: &validator{}, token: tokenKey(1).token}, version{1}, now, false},
	} {
		c := newCache(1)
		c.put(tokenKey(1), cached{keys: version{1}, expires: now.Add(time.Minute), weight: 1})
		if _, ok := c.get(tc.key, tc.keys, tc.at); ok != tc.want {
			t.Errorf("%s: known is %t", tc.name, ok)
		}
		if tc.key == tokenKey(1) && !tc.want && c.len() != 0 {
			t.Errorf("%s: the entry is still there", tc.name)
		}
	}
}
