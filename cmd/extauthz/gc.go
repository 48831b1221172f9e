package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"
)

// The garbage collector runs each time the heap has grown by GOGC percent. With the few megabytes that this service needs
// that is hundreds of times a second under load, and costs a third of the throughput. So it may leave that much garbage
// instead, whatever the live heap:
const (
	garbage       = 64 << 20
	minGCPercent  = 50
	maxGCPercent  = 800
	tuneInterval  = 10 * time.Second
	memoryPercent = 90 // of the container's memory limit, where Go must begin to collect harder
)

// tuneGC sets GOGC and GOMEMLIMIT where the operator has not, until ctx is done.
func tuneGC(ctx context.Context, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit := containerMemory(); limit > 0 {
			debug.SetMemoryLimit(limit / 100 * memoryPercent)
			log.Info("memory limit", "bytes", limit/100*memoryPercent)
		}
	}
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(maxGCPercent)
	go func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for tick := time.Tick(tuneInterval); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
				metrics.Read(live)
				debug.SetGCPercent(gcPercent(live[0].Value.Uint64()))
			}
		}
	}()
}

func gcPercent(live uint64) int {
	return int(max(minGCPercent, min(maxGCPercent, garbage*100/max(1, live))))
}

// containerMemory is the limit of cgroup v2, 0 when there is none.
func containerMemory() int64 {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return limit
}
