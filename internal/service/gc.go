package service

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strconv"
)

// The garbage collector runs each time the heap has grown by GOGC percent. This service needs only a few megabytes, so
// under load the collector would run hundreds of times a second and cost a third of the throughput. A high GOGC, such
// as 800, is no remedy: each megabyte that an attack makes the service hold could then leave eight megabytes of
// garbage. So GOGC follows the heap: each collection sets it such that the next one comes after garbage bytes, and half
// of what the collector has to read. Buckets have no pointers, so it does not read them, and they leave no garbage.
const (
	garbage       = 32 << 20
	leastGOGC     = 5  // bounds the work of the collector in a heap of many gigabytes
	memoryPercent = 90 // of the container's memory limit; above it, Go collects more often
)

// tuneGC sets GOGC, until ctx is done, and GOMEMLIMIT, unless they are set. limit is math.MaxInt64 for none.
func tuneGC(ctx context.Context, log *slog.Logger) (limit int64) {
	limit = debug.SetMemoryLimit(-1) // GOMEMLIMIT
	if os.Getenv("GOMEMLIMIT") == "" {
		if container := containerMemory(); container > 0 {
			limit = container / 100 * memoryPercent
			debug.SetMemoryLimit(limit)
			log.Info("GOMEMLIMIT is set from the memory limit of the container", "bytes", limit)
		}
	}
	if os.Getenv("GOGC") == "" {
		followHeap(ctx, 0)
	}
	return limit
}

// followHeap sets GOGC for the next collection, unless it is so now, and again after that collection.
func followHeap(ctx context.Context, now int) {
	if ctx.Err() != nil {
		return
	}
	heap := []runtimemetrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
	}
	runtimemetrics.Read(heap)
	percent := gogc(heap[0].Value.Uint64(), heap[1].Value.Uint64(), heap[2].Value.Uint64()+heap[3].Value.Uint64())
	if percent != now {
		debug.SetGCPercent(percent)
	}
	// The collector frees this object, and then calls the function.
	runtime.AddCleanup(new([64]byte), func(percent int) { followHeap(ctx, percent) }, percent)
}

// gogc returns GOGC for a heap with so many live bytes, of which the collector reads some, and the bytes that it reads
// elsewhere. GOGC is a percentage of live and elsewhere, and of at least 4 MB.
func gogc(live, read, elsewhere uint64) int {
	return int(max(100*(garbage+(read+elsewhere)/2)/max(live+elsewhere, 4<<20), leastGOGC))
}

// containerMemory returns the memory limit of cgroup v2, or 0 if there is none.
func containerMemory() int64 {
	text, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	limit, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // 0 for "max", and without the file
	return limit
}
