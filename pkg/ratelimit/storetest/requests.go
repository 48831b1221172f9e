package storetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// walk is a case of the vectors, in the form of requests.jsonl (testdata/vectors/README.md). It has requests to new
// buckets, with roles, peeks, refunds and changing limits. They are sent one by one or in batches.
type walk struct {
	ID      string
	Kind    string // "holds" for a case of holds.jsonl
	Buckets []walkBucket
	Steps   []step
	mixed   bool // it is one of requests.jsonl or holds.jsonl
}

type walkBucket struct {
	Algo     bucket.Algorithm
	W        int64
	Expiry   string           // "release" or "charge"
	Calendar *bucket.Calendar `json:"-"`
}

type step struct {
	T     int64
	Takes []walkTake
	// J is 1 if the step belongs to the batch of the previous step.
	J       int
	OK      bool
	RA      int64
	Res     []result
	Reading []string
}

type walkTake struct {
	Bucket int `json:"b"`
	// Requests and Burst need tags, because their keys differ from other keys only in case.
	Requests int64  `json:"L"`
	Burst    int64  `json:"B"`
	Cost     uint64 `json:"c"`
	Need     uint64 `json:"n"`
	// Refund is a number of units. In holds.jsonl, it is the list of reserves: see holdCosts.
	Refund    json.RawMessage `json:"r"`
	Settles   json.RawMessage `json:"s"`
	TTL, Most int64
	Counted   int         `json:"d"`
	Role      bucket.Role `json:"o"`
	// Queue is the units that may wait before the take, nil if none can wait.
	Queue *int64 `json:"q"`
}

// result is the result of one take: its verdict, remaining, retry after, reset after, next in, expire at and delay, and
// the units and number of live holds. A wanted reset after, next in, expire at or delay of notCompared matches any.
type result [9]int64

const (
	resetAfterIndex, nextInIndex, expireAtIndex, delayIndex, unitsIndex, numberIndex = 3, 4, 5, 6, 7, 8

	notCompared = -1
)

// verdict returns 1 if a take fits, else 0.
func verdict(fits bool) int64 {
	if fits {
		return 1
	}
	return 0
}

// forward returns the walk up to the first step at which the clock goes back.
func (w walk) forward() walk {
	for i := 1; i < len(w.Steps); i++ {
		if w.Steps[i].T < w.Steps[i-1].T {
			w.Steps = w.Steps[:i]
		}
	}
	return w
}

func (w walk) run(t *testing.T, store Store, run string) {
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
		dry := batch[0]
		dry.Dry = true // the later requests show that it has changed nothing, alone or in their batch
		steps[0].compare(t, i, take(t, store, dry)[0])
		outcomes := take(t, store, slices.Insert(batch, 0, dry)...)
		steps[0].compare(t, i, outcomes[0])
		for k, o := range outcomes[1:] {
			steps[k].compare(t, i+k, o)
		}
		i = end
	}
}

func (w walk) request(t *testing.T, s step, run string) bucket.Request {
	t.Helper()
	r := bucket.Request{At: s.T}
	for _, v := range s.Takes {
		b := w.Buckets[v.Bucket]
		limit := bucket.Limit{Algorithm: b.Algo, Requests: v.Requests, Window: b.W, Burst: v.Burst, Calendar: b.Calendar}
		if err := limit.Check(); err != nil && w.Kind != "holds" { // its logs may be larger than those of a rule
			t.Fatalf("the vectors have an invalid limit: %v", err)
		}
		take := bucket.Take{
			Key: fmt.Sprintf("%s/%s/%d", run, w.ID, v.Bucket), Limit: limit,
			Cost: v.Cost, Need: v.Need, CountDenied: v.Counted == 1, Role: v.Role,
		}
		if w.Kind == "holds" {
			take.Hold = &bucket.Hold{
				TTL: v.TTL, Most: v.Most, Release: b.Expiry == "release",
				Reserves: holdCosts(t, v.Refund), Settles: holdCosts(t, v.Settles),
			}
		} else if v.Refund != nil {
			if err := json.Unmarshal(v.Refund, &take.Refund); err != nil {
				t.Fatalf("a refund of %s: %v", v.Refund, err)
			}
		}
		if v.Queue != nil {
			take.Queue(*v.Queue)
		}
		r.Add(take)
	}
	return r
}

// holdCosts reads a list of [id, cost]. Of one id, the costs add up.
func holdCosts(t *testing.T, list json.RawMessage) (costs []bucket.HoldCost) {
	t.Helper()
	var all [][2]uint64
	if list == nil {
		return nil
	}
	if err := json.Unmarshal(list, &all); err != nil {
		t.Fatalf("costs of holds %s: %v", list, err)
	}
	for _, c := range all {
		cost := bucket.HoldCost{Cost: c[1]}
		binary.LittleEndian.PutUint64(cost.ID[:], c[0])
		costs = append(costs, cost)
	}
	return costs
}

func (s step) compare(t *testing.T, step int, o bucket.Outcome) {
	t.Helper()
	if o.Err != nil {
		t.Fatalf("step %d: %v", step, o.Err)
	}
	got := make([]result, len(o.Decisions))
	for i, d := range o.Decisions {
		got[i] = result{
			verdict(d.Allowed), d.Remaining, d.RetryAfter, d.ResetAfter, d.NextIn, d.ExpireAt, d.Delay,
		}
		if d.Held != nil {
			got[i][unitsIndex], got[i][numberIndex] = d.Held.Units, d.Held.Number
		}
		for _, k := range [...]int{resetAfterIndex, nextInIndex, expireAtIndex, delayIndex} {
			if i < len(s.Res) && s.Res[i][k] == notCompared {
				got[i][k] = notCompared
			}
		}
	}
	if o.Allowed != s.OK || o.RetryAfter != s.RA || !slices.Equal(got, s.Res) {
		takes, _ := json.Marshal(s.Takes) //nolint:errchkjson // plain numbers
		t.Fatalf("step %d (t=%d, takes %s, reading %v):\n"+
			" got allowed %t, retry after %d, %v\nwant allowed %t, retry after %d, %v",
			step, s.T, takes, s.Reading, o.Allowed, o.RetryAfter, got, s.OK, s.RA, s.Res)
	}
}
