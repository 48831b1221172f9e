package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// A requestWalk is one case of requests.jsonl (testdata/vectors/README.md). It has requests with roles, peeks,
// refunds and changing limits, to be sent one by one or in batches.
type requestWalk struct {
	ID      string
	Buckets []struct {
		Algo bucket.Algorithm
		W    int64
	}
	Steps []requestStep
}

type requestStep struct {
	T     int64
	Takes []requestTake
	// J is 1 if the step belongs to the batch of the previous step.
	J       int
	OK      bool
	RA      int64
	Res     []requestResult
	Reading []string
}

type requestTake struct {
	Bucket int `json:"b"`
	// Requests and Burst need tags, because their keys differ from other keys only in case.
	Requests int64       `json:"L"`
	Burst    int64       `json:"B"`
	Cost     uint64      `json:"c"`
	Need     uint64      `json:"n"`
	Refund   uint64      `json:"r"`
	Counted  int         `json:"d"`
	Role     bucket.Role `json:"o"`
}

// requestResult is the result of one take: whether it fits (0 or 1), remaining, retry after, reset after, next in,
// expire at and delay. A wanted delay of notCompared matches any delay.
type requestResult [7]int64

const (
	delayIndex  = 6
	notCompared = -1
)

func (w requestWalk) name() string { return w.ID }

// forward returns the walk up to the first step at which the clock goes back.
func (w requestWalk) forward() requestWalk {
	for i := 1; i < len(w.Steps); i++ {
		if w.Steps[i].T < w.Steps[i-1].T {
			w.Steps = w.Steps[:i]
		}
	}
	return w
}

func (w requestWalk) run(t *testing.T, store Store, run string) {
	for i := 0; i < len(w.Steps); {
		end := i + 1
		for end < len(w.Steps) && w.Steps[end].J == 1 {
			end++
		}
		steps := w.Steps[i:end]
		batch := make([]bucket.Request, len(steps))
		for k, s := range steps {
			batch[k] = w.request(t, s, run)
		}
		for k, o := range take(t, store, batch...) {
			steps[k].compare(t, i+k, o)
		}
		i = end
	}
}

func (w requestWalk) request(t *testing.T, s requestStep, run string) bucket.Request {
	t.Helper()
	r := bucket.Request{At: s.T}
	for _, v := range s.Takes {
		b := w.Buckets[v.Bucket]
		limit := bucket.Limit{Algorithm: b.Algo, Requests: v.Requests, Window: b.W, Burst: v.Burst}
		if err := limit.Check(); err != nil {
			t.Fatalf("the vectors have an invalid limit: %v", err)
		}
		r.Add(bucket.Take{
			Key: fmt.Sprintf("%s/%s/%d", run, w.ID, v.Bucket), Limit: limit,
			Cost: v.Cost, Need: v.Need, Refund: v.Refund, CountDenied: v.Counted == 1, Role: v.Role,
		})
	}
	return r
}

func (s requestStep) compare(t *testing.T, step int, o bucket.Outcome) {
	t.Helper()
	if o.Err != nil {
		t.Fatalf("step %d: %v", step, o.Err)
	}
	got := make([]requestResult, len(o.Decisions))
	for i, d := range o.Decisions {
		got[i] = requestResult{0, d.Remaining, d.RetryAfter, d.ResetAfter, d.NextIn, d.ExpireAt, d.Delay}
		if d.Allowed {
			got[i][0] = 1
		}
		if i < len(s.Res) && s.Res[i][delayIndex] == notCompared {
			got[i][delayIndex] = notCompared
		}
	}
	if o.Allowed != s.OK || o.RetryAfter != s.RA || !slices.Equal(got, s.Res) {
		takes, _ := json.Marshal(s.Takes) //nolint:errchkjson // plain numbers
		t.Fatalf("step %d (t=%d, takes %s, reading %v):\n"+
			" got allowed %t, retry after %d, %v\nwant allowed %t, retry after %d, %v",
			step, s.T, takes, s.Reading, o.Allowed, o.RetryAfter, got, s.OK, s.RA, s.Res)
	}
}
