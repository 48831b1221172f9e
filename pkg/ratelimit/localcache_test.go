package ratelimit

import (
	"fmt"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestLocalCacheIsBounded notes more buckets than fit. The last one stays, and as many others as fit.
func TestLocalCacheIsBounded(t *testing.T) {
	t.Parallel()
	const size, end = 1 << 20, 100
	c := newLocalCache(&Config{Strict: true, LocalCache: size, Clock: func() int64 { return 0 }})
	const key = "key%08d" // 11 bytes
	const most = size / (11 + localEntry)
	for i := range 2 * most {
		name := fmt.Sprintf(key, i)
		c.note(name, end)
		c.note(name, end) // twice: it has its room only once
		if left := c.denies(&bucket.Take{Key: name}, 40); left != 60 {
			t.Fatalf("%s: denied for %d, want 60", name, left)
		}
	}
	if len(c.until) != most || c.size != most*(11+localEntry) {
		t.Errorf("%d buckets of %d bytes, want %d", len(c.until), c.size, most)
	}
	if last := (&bucket.Take{Key: fmt.Sprintf(key, 2*most-1)}); c.denies(last, end) != 0 {
		t.Error("denied after the end of the window")
	}
}
