package bucket_test

import (
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// A token bucket holds 2 tokens and gets one back every 6 seconds. The decision is a pure function: the caller passes
// the time and keeps the state.
func ExampleRequest_Decide() {
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 10, Window: time.Minute.Microseconds(), Burst: 2}
	request := bucket.Request{Takes: []bucket.Take{{Key: "alice", Limit: limit, Cost: 1}}}
	loaded := make([]bucket.Loaded, 1) // a store reads and keeps this
	var outcome bucket.Outcome

	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, after := range []time.Duration{0, 0, 0, 4 * time.Second, 6 * time.Second} {
		request.Decide(start.Add(after).UnixMicro(), loaded, &outcome)
		fmt.Printf("%v: allowed=%t remaining=%d retry=%v\n", after, outcome.Allowed,
			outcome.Decisions[0].Remaining, time.Duration(outcome.RetryAfter)*time.Microsecond)
	}
	// Output:
	// 0s: allowed=true remaining=1 retry=0s
	// 0s: allowed=true remaining=0 retry=0s
	// 0s: allowed=false remaining=0 retry=6s
	// 4s: allowed=false remaining=0 retry=2s
	// 6s: allowed=true remaining=0 retry=0s
}
