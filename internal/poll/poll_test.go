package poll_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/poll"
)

// TestLoop polls at intervals, at once on request, and not after the context is done. Requests before a poll count as
// one.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		loop, start := poll.NewLoop(), time.Now()
		loop.Reload()
		loop.Reload()
		var got []string
		go loop.Run(ctx, func(requested bool) {
			got = append(got, fmt.Sprint(time.Since(start), " ", requested))
		})
		time.Sleep(600 * time.Millisecond)
		loop.Reload()
		time.Sleep(100 * time.Millisecond)
		cancel()
		time.Sleep(10 * poll.Interval)
		synctest.Wait()
		if d := cmp.Diff([]string{"0s true", "500ms false", "600ms true"}, got); d != "" {
			t.Error(d)
		}
	})
}
