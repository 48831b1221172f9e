package poll

import (
	"context"
	"time"
)

// Interval is the time between two polls. A change counts when two polls in a row agree, so it takes effect within two
// intervals. Change notifications of the kernel are not used: they miss changes on network file systems and behind the
// links of a ConfigMap or Secret.
const Interval = 500 * time.Millisecond

// Loop polls. Use NewLoop.
type Loop struct{ requests chan struct{} }

// NewLoop returns a loop.
func NewLoop() Loop { return Loop{make(chan struct{}, 1)} }

// Reload makes Run poll at once, as on SIGHUP. It does not block and may be called from any goroutine.
func (l Loop) Reload() {
	select {
	case l.requests <- struct{}{}:
	default: // a request is waiting already
	}
}

// Every calls f after each interval until ctx is done.
func Every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// Run calls poll at each Interval until the context is done. requested is true after Reload.
func (l Loop) Run(ctx context.Context, poll func(requested bool)) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.requests:
			poll(true)
		case <-ticker.C:
			poll(false)
		}
	}
}
