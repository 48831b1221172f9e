//go:build !linux

package loadgen

import "time"

// newAlarm returns a function that waits, as exactly as Go's timers do.
func newAlarm() (wait func(time.Duration), stop func()) { return time.Sleep, func() {} }
