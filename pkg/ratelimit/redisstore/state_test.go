package redisstore_test

import (
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// parseState reads the text that the script stores for a bucket of this algorithm; "" is an unused bucket. It reads it
// as an answer of the script at the time and by the rate of the text, which change nothing of the state.
func parseState(a bucket.Algorithm, text string) (bucket.State, error) {
	if a == bucket.CalendarWindow { // the text is the same
		a = bucket.FixedWindow
	}
	limit := bucket.Limit{Algorithm: a, Requests: 1, Burst: 1, Window: bucket.MaxWindow}
	r := bucket.Request{At: 1}
	fields := strings.Fields(text[strings.IndexByte(text, '|')+1:])
	if len(fields) > 1 {
		r.At, _ = strconv.ParseInt(fields[1], 10, 64)
	}
	if a.HasBurst() && len(fields) == 5 {
		limit.Requests, _ = strconv.ParseInt(fields[4], 10, 64)
	}
	r.Takes = []bucket.Take{{Limit: limit, Hold: new(bucket.Hold)}}
	var o bucket.Outcome
	if err := r.Decode("+\t1"+text, bucket.Reply{}, &o); err != nil {
		return bucket.State{}, err
	}
	return o.Seen[0].State, nil
}
