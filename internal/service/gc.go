package service

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
)

// The garbage collector runs each time the heap has grown by GOGC percent. This service needs only a few megabytes, so
// under load the collector would run hundreds of times a second and cost a third of the throughput. A high GOGC, such
// as 800, is no remedy: each megabyte that an attack makes the service hold could then leave eight megabytes of
// garbage. So the heap begins with a block that is never touched. The operating system gives no memory for that block,
// and the collector waits for garbage of half its size, plus half of the live heap.
const (
	reserve       = 128 << 20
	gcPercent     = 50
	memoryPercent = 90 // of the container's memory limit; above it, Go collects more often
)

// tuneGC sets GOGC and GOMEMLIMIT unless the operator has set them. It returns the memory limit, or math.MaxInt64 for
// none, and a block that must stay alive while the process serves.
func tuneGC(e Environment, log *slog.Logger) (limit int64, reserved []byte) {
	limit = debug.SetMemoryLimit(-1) // GOMEMLIMIT
	if e["GOMEMLIMIT"] == "" {
		if container := containerMemory(); container > 0 {
			limit = container / 100 * memoryPercent
			debug.SetMemoryLimit(limit)
			log.Info("GOMEMLIMIT is set from the memory limit of the container", "bytes", limit)
		}
	}
	if e["GOGC"] != "" {
		return limit, nil
	}
	debug.SetGCPercent(gcPercent)
	if limit < math.MaxInt64-reserve {
		debug.SetMemoryLimit(limit + reserve) // the limit counts the reserved block
	}
	return limit, make([]byte, reserve)
}

// containerMemory returns the memory limit of cgroup v2, or 0 if there is none.
func containerMemory() int64 {
	text, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	limit, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // 0 for "max", and without the file
	return limit
}
