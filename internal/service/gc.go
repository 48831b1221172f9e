package service

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
)

// The garbage collector runs each time the heap has grown by GOGC percent. With the few megabytes that this service needs that is
// hundreds of times a second under load, and costs a third of the throughput. A GOGC of 800 would leave as much garbage again for
// each megabyte that an attack makes the service hold, until it is set anew. So the heap begins with a block that is never touched:
// the operating system gives no memory for it, and half of it is left for garbage, beside half of what lives.
const (
	reserve       = 128 << 20
	gcPercent     = 50
	memoryPercent = 90 // of the container's memory limit, where Go must begin to collect harder
)

// tuneGC sets GOGC and GOMEMLIMIT where the operator has not, and returns the memory limit, math.MaxInt64 for none, and what has to
// stay alive for as long as the process serves.
func tuneGC(e Environment, log *slog.Logger) (limit int64, reserved []byte) {
	limit = debug.SetMemoryLimit(-1) // GOMEMLIMIT
	if e["GOMEMLIMIT"] == "" {
		if container := containerMemory(); container > 0 {
			limit = container / 100 * memoryPercent
			debug.SetMemoryLimit(limit)
			log.Info("memory limit", "bytes", limit)
		}
	}
	if e["GOGC"] != "" {
		return limit, nil
	}
	debug.SetGCPercent(gcPercent)
	if limit < math.MaxInt64-reserve {
		debug.SetMemoryLimit(limit + reserve) // it counts what is reserved
	}
	return limit, make([]byte, reserve)
}

// containerMemory is the limit of cgroup v2, 0 when there is none.
func containerMemory() int64 {
	text, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	limit, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // 0 for "max", and without the file
	return limit
}
