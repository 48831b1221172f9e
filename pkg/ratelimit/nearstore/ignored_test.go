package nearstore_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// strange is a shared store whose answers have a state that no bucket can have.
type strange struct{ unused }

// Start implements nearstore.Shared.
func (strange) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	for i := range requests {
		now := time.Now()
		requests[i].Decide(now.UnixMicro(), make([]bucket.Loaded, len(requests[i].Takes)), &outcomes[i])
		reply := bucket.Reply{Clock: now.UnixMicro(), Sent: now, Received: now}
		seen := bucket.Seen{State: bucket.State{Count: -1}, Reply: reply}
		outcomes[i].Seen = append(outcomes[i].Seen[:0], seen)
	}
}

// TestStrangeStates checks that a state that cannot be right is not trusted: the answer counts, the bucket stays
// unknown, and one log line a minute reports it.
func TestStrangeStates(t *testing.T) {
	var log bytes.Buffer
	near, err := nearstore.New(nearstore.Config{
		Shared: strange{}, DenialCache: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	requests, outcomes := make([]bucket.Request, 1), make([]bucket.Outcome, 1)
	requests[0].Add(bucket.Take{Key: "k", Limit: perDay(bucket.FixedWindow, 10), Cost: 1})
	for range 3 {
		if ratelimit.Take(t.Context(), near, requests, outcomes); outcomes[0].Err != nil || !outcomes[0].Allowed {
			t.Errorf("got %+v, want the answer of the shared store", outcomes[0])
		}
	}
	ratelimit.Take(t.Context(), near.Local(), requests, outcomes)
	if left := outcomes[0].Decisions[0].Remaining; left != 9 {
		t.Errorf("without Redis: %d left, want 9 as of a bucket that was never seen", left)
	}
	stats := near.Stats()
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(log.String(), "was ignored"); stats.Unreadable < 3 || lines != 1 {
		t.Errorf("%d states counted, want 3 or more; %d lines, want 1:\n%s", stats.Unreadable, lines, &log)
	}
}
