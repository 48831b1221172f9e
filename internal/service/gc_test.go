package service

import (
	"fmt"
	"runtime"
	runtimemetrics "runtime/metrics"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestGarbage checks that the next collection comes after a bounded amount of garbage, for a small heap and for one
// with many buckets, which have no pointers.
func TestGarbage(t *testing.T) {
	followHeap(t.Context(), 0)
	for name, buckets := range map[string]int{"small": 0, "buckets": 200 << 20} {
		t.Run(name, func(t *testing.T) {
			memory := make([]byte, buckets)
			runtime.GC()
			testenv.Eventually(t, func() error {
				heap := []runtimemetrics.Sample{
					{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/total:bytes"},
				}
				runtimemetrics.Read(heap)
				goal, live, read := heap[0].Value.Uint64(), heap[1].Value.Uint64(), heap[2].Value.Uint64()
				if live > uint64(buckets) && goal-live > garbage/2 && goal-live < 3*garbage/2+read {
					return nil
				}
				return fmt.Errorf("%d bytes live, %d read, the next collection at %d", live, read, goal)
			}, "GOGC to follow the heap")
			runtime.KeepAlive(memory)
		})
	}
}

// TestGOGC checks that GOGC makes the garbage that is allowed a part of the heap.
func TestGOGC(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for _, c := range []struct {
		live, read, elsewhere uint64
		want                  int
	}{
		{0, 0, 0, 800},
		{4 * mb, 2 * mb, 0, 825},
		{100 * mb, 100 * mb, 0, 82}, // all of it has pointers: 32 MB and half
		{150 * mb, 0, 10 * mb, 23},
		{100_000 * mb, 0, 0, leastGOGC},
	} {
		if got := gogc(c.live, c.read, c.elsewhere); got != c.want {
			t.Errorf("%d MB live, %d read, %d elsewhere: GOGC %d, want %d", c.live/mb, c.read/mb, c.elsewhere/mb, got, c.want)
		}
	}
}
