package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestBytesInRedis measures what a bucket with a key of 40 bytes needs in Redis, by algorithm and the requests that a
// log remembers. docs/sizing.md has the same figures. The tables of Redis are as full in a short run as in a long one.
func TestBytesInRedis(t *testing.T) {
	const batch, key = 500, 40
	buckets := testenv.Steps(12_500, 100_000)
	for _, c := range []struct {
		algorithm       bucket.Algorithm
		requests, bytes int
	}{
		{bucket.SlidingWindowCounter, 1, 181},
		{bucket.TokenBucket, 1, 181},
		{bucket.LeakyBucket, 1, 181},
		{bucket.FixedWindow, 1, 181},
		{bucket.SlidingWindowLog, 1, 200},
		{bucket.SlidingWindowLog, 5, 250},
		{bucket.SlidingWindowLog, 20, 410},
	} {
		server := testenv.Redis(t)
		s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
		limit := bucket.Limit{Algorithm: c.algorithm, Requests: 1000, Burst: 1000, Window: 86_400_000_000}
		takeOne(t, s, "another", limit) // loads the script
		want := c.bytes
		if info, err := server.Do("INFO", "server"); err != nil {
			t.Fatal(err)
		} else if strings.Contains(info, "valkey_version") {
			want = want * 9 / 10 // keeps a key within its entry
		}
		before := usedMemory(t, server)
		for range c.requests {
			for i := 0; i < buckets; i += batch {
				var requests []bucket.Request
				for j := range batch {
					requests = append(requests, ask(fmt.Sprintf("%0*d", key, i+j), limit))
				}
				take(t.Context(), s, requests...)
			}
		}
		// In a fast run, the times in a log have fewer digits.
		if got := (usedMemory(t, server) - before) / buckets; got < want*85/100 || got > want*105/100 {
			t.Errorf("%v, requests: %d: %d bytes a bucket, want some %d", c.algorithm, c.requests, got, want)
		}
	}
}

// TestBytesOfHoldsInRedis measures what a bucket with live holds needs in Redis. docs/sizing.md has the same figures.
func TestBytesOfHoldsInRedis(t *testing.T) {
	const key = 40
	limit := bucket.Limit{Algorithm: bucket.Concurrency, Requests: 10_000}
	terms := bucket.Hold{TTL: 600_000_000, Most: 10_000, Release: true}
	for _, c := range []struct{ buckets, holds, bytes int }{
		{4_000, 1, 410}, {2_000, 5, 560}, {200, 128, 5_300}, {20, 1_000, 100_000},
	} {
		server := testenv.Redis(t)
		s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
		take(t.Context(), s, hold("another", limit, 0, terms, held(1, 0), nil)) // loads the script
		before := usedMemory(t, server)
		for i := range c.buckets {
			var requests []bucket.Request
			for j := range c.holds {
				requests = append(requests, hold(fmt.Sprintf("%0*d", key, i), limit, 0, terms, held(1, j), nil))
			}
			for _, o := range take(t.Context(), s, requests...) {
				if !o.Allowed {
					t.Fatalf("a reserve: %+v", o)
				}
			}
		}
		if got := (usedMemory(t, server) - before) / c.buckets; got < c.bytes*80/100 || got > c.bytes*105/100 {
			t.Errorf("%d holds: %d bytes a bucket, want some %d", c.holds, got, c.bytes)
		}
	}
}

// usedMemory returns the bytes that Redis has allocated.
func usedMemory(t *testing.T, server *testenv.RedisServer) int {
	t.Helper()
	text, err := server.Do("INFO", "memory")
	used := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(text)
	if err != nil || used == nil {
		t.Fatalf("INFO memory: %v", err)
	}
	n, err := strconv.Atoi(used[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
