package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// soakTime is how long TestSoak goes on: some seconds, or SOAK, which `make soak` sets.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(testenv.SoakVariable)
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s=%s: %v", testenv.SoakVariable, text, err)
	}
	return d
}

// TestSoak has clients ask the native transport without a pause. Meanwhile connections end for their age every 200 ms,
// clients reset calls and leave without a word, and Redis hangs again and again. Each call gets one answer, its own. In
// the end, the service has as many goroutines as at the start, and no more memory.
func TestSoak(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	s := testenv.Service(t, binary, "RUNTIME_ROOT="+testenv.RulesRootWith(t, soakRules), "REDIS_URL="+redis.Addr,
		"GRPC_TRANSPORT=native", "GRPC_MAX_CONNECTION_AGE=200ms", "DEBUG_PPROF=true", "LOG_LEVEL=ERROR")
	load := &soak{T: t, address: testenv.Loopback(s.GRPCPort)}
	load.round(1, 100) // the service now has what it keeps
	before := resourcesOf(t, s)

	ctx, stop := context.WithTimeout(t.Context(), soakTime(t))
	defer stop()
	const clients = 8
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for seed := uint64(0); ctx.Err() == nil && !t.Failed(); seed++ {
				load.round(seed*clients+uint64(i), 50)
			}
		})
	}
	for ctx.Err() == nil {
		pause(ctx, 300*time.Millisecond)
		redis.Pause()
		pause(ctx, 150*time.Millisecond)
		redis.Resume()
	}
	all.Wait()
	t.Logf("%d answers, %d resets, %d connections, and %d GOAWAY", load.answers.Load(),
		load.resets.Load(), load.connections.Load(), load.goAways.Load())
	if load.goAways.Load() == 0 || load.resets.Load() == 0 {
		t.Error("the load had no GOAWAY, or no reset")
	}

	var after resources
	testenv.Eventually(t, func() error {
		const spare = 8 << 20 // buckets that the replica knows, and the slack of the allocator
		after = resourcesOf(t, s)
		switch {
		case after.connections > 0:
			return fmt.Errorf("%v connections are open", after.connections)
		case after.goroutines > before.goroutines+2:
			return fmt.Errorf("%v goroutines, %v at the start", after.goroutines, before.goroutines)
		case after.heap > before.heap+spare:
			return fmt.Errorf("%.1f MB of heap, %.1f at the start", after.heap/1e6, before.heap/1e6)
		}
		return nil
	}, "the service to have what it had at the start")
	t.Logf("before: %+v, after: %+v", before, after)
	for _, reason := range []string{"rapid_reset", "stream_errors", "flood", "protocol", "slow_answer"} {
		if n := testenv.Metric(t, debugURL(s), fmt.Sprintf("extauthz_cut_total{port=%q,reason=%q}", "grpc", reason)); n > 0 {
			t.Errorf("%v connections were closed: %s", n, reason)
		}
	}
}

// pause waits, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	each, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-each.Done()
}

// resources are what a service uses.
type resources struct{ goroutines, heap, connections float64 }

func resourcesOf(t *testing.T, s *testenv.RunningService) resources {
	t.Helper()
	for range 2 { // pools survive the first collection
		res, err := http.Get(debugURL(s) + "/debug/pprof/heap?gc=1")
		if err == nil {
			err = res.Body.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return resources{
		goroutines:  testenv.Metric(t, debugURL(s), "go_goroutines"),
		heap:        testenv.Metric(t, debugURL(s), "go_memstats_heap_alloc_bytes"),
		connections: testenv.Metric(t, debugURL(s), `extauthz_connections{port="grpc"}`),
	}
}

func debugURL(s *testenv.RunningService) string { return "http://" + testenv.Loopback(s.DebugPort) }

// soak is a load that checks each answer.
type soak struct {
	*testing.T
	address                               string
	answers, resets, connections, goAways atomic.Int64
}

// round asks on one connection in some batches, and closes it at the end, unless the service ends it for its age.
func (s *soak) round(seed uint64, batches int) {
	c, err := s.connect(seed)
	if err != nil {
		s.Error(err)
		return
	}
	s.connections.Add(1)
	for range batches {
		err := c.batch()
		switch {
		case errors.Is(err, errLeft):
			return
		case err != nil:
			s.Error(err)
			return
		case c.leaving:
			s.goAways.Add(1)
			if err := c.untilClosed(); err != nil {
				s.Error(err)
			}
			return
		}
	}
	_ = c.conn.Close()
}
