package loadgen

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// newAlarm returns a function that waits, exact to some 25 µs. The timers of Go are exact to 1 ms, because the runtime
// waits for them and for the network with the same call. Both functions belong to the calling goroutine.
func newAlarm() (wait func(time.Duration), stop func()) {
	runtime.LockOSThread()
	// Without this, the kernel adds up to 50 µs. If it refuses, the alarm is less exact.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	wait = func(d time.Duration) {
		if d > 0 {
			t := unix.NsecToTimespec(int64(d))
			_ = unix.Nanosleep(&t, nil) // a signal ends it early, and the caller looks at the clock
		}
	}
	return wait, func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0 is the default
		runtime.UnlockOSThread()
	}
}
