package redisstore_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// TestManyTakes: whoever reaches the port can send a request with more takes than 16 bits count; it is decided, and at once.
func TestManyTakes(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	const n = 70_000
	r := &bucket.Request{}
	for i := range n {
		r.Add(bucket.Take{Key: fmt.Sprint(i), Limit: perDay(10), Cost: 1})
	}
	s.Take(t.Context(), []*bucket.Request{r})
	if r.Err != nil || !r.Allowed {
		t.Fatalf("%d takes: allowed %t, %v", n, r.Allowed, r.Err)
	}
	if held := dial(t, server.Addr).DBSize(t.Context()).Val(); held != n {
		t.Errorf("%d buckets were charged, want %d", held, n)
	}
	if i := r.Add(bucket.Take{Key: fmt.Sprint(n / 2), Limit: perDay(10), Cost: 1}); i != n/2 {
		t.Errorf("the same bucket again is take %d, want %d", i, n/2)
	}
}

// TestOneRoundTrip: whatever is asked takes one command, and those who ask at the same time share it.
func TestOneRoundTrip(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, PoolSize: 1})
	admin := dial(t, server.Addr)
	commands := func() string {
		var b strings.Builder
		for line := range strings.Lines(admin.Info(t.Context(), "commandstats").Val()) {
			name, stats, _ := strings.Cut(line, ":")
			if !strings.Contains(name, "config") && !strings.Contains(name, "info") && strings.HasPrefix(name, "cmdstat") {
				calls, _, _ := strings.Cut(stats, ",")
				fmt.Fprintf(&b, "%s %s; ", strings.TrimPrefix(name, "cmdstat_"), calls)
			}
		}
		return b.String()
	}
	healthy(t, s)
	if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var batch []*bucket.Request
	for i := range 5 {
		r := &bucket.Request{At: 1_700_000_000_000_000}
		for j := range 4 {
			r.Add(bucket.Take{Key: fmt.Sprint(i, j), Limit: perDay(10), Need: 1})
		}
		batch = append(batch, r)
	}
	s.Take(t.Context(), batch)
	if got, want := commands(), "evalsha calls=1; get calls=20; "; !sameWords(got, want) {
		t.Errorf("5 requests of 4 takes in one batch made the commands %q, want %q", got, want)
	}

	// While Redis stands still one call is on the wire; the others gather.
	if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if err := takeOne(t, s, fmt.Sprint("gather", i), perDay(10)).Err; err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "40 callers to wait", func() bool { return strings.Count(stacks(), "(*Store).submit") == 40 })
	server.Resume()
	all.Wait()
	if got := commands(); !strings.Contains(got, "evalsha calls=2;") {
		t.Errorf("40 requests at the same time made the commands %q, want 2 EVALSHA", got)
	}
}

func sameWords(a, b string) bool {
	count := map[string]int{}
	for word := range strings.SplitSeq(a, "; ") {
		count[word]++
	}
	for word := range strings.SplitSeq(b, "; ") {
		count[word]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// TestOrder: requests of one batch are decided in their order, also when it takes several calls.
func TestOrder(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	var batch []*bucket.Request
	for range 300 {
		batch = append(batch, ask("k", perDay(150)))
	}
	s.Take(t.Context(), batch)
	for i, r := range batch {
		if r.Err != nil || r.Allowed != (i < 150) {
			t.Fatalf("request %d of 300 to a bucket of 150: allowed %t, %v", i, r.Allowed, r.Err)
		}
	}
}
