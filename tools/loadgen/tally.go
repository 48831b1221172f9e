package loadgen

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc/codes"
)

type outcome struct {
	latency time.Duration
	allowed bool
	inTime  bool // before the end of the plan's duration
}

// tally counts the answers of all lanes.
type tally struct {
	mu              sync.Mutex
	latency         *hdrhistogram.Histogram // ns
	allowed, denied int64
	inTime          int64
	failed          int64
	failures        map[codes.Code]*Failure
	reconnects      int64
}

// Latencies are exact to three digits up to mostLatency; a request in an open loop can wait as long as the plan takes.
const mostLatency = int64(MostDuration + MostTimeout)

func newTally() *tally {
	return &tally{latency: hdrhistogram.New(1, mostLatency, 3), failures: map[codes.Code]*Failure{}}
}

func (t *tally) add(batch []outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range batch {
		_ = t.latency.RecordValue(min(max(int64(o.latency), 1), mostLatency)) // within the range
		if o.allowed {
			t.allowed++
		} else {
			t.denied++
		}
		if o.inTime {
			t.inTime++
		}
	}
}

func (t *tally) fail(f failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	if known := t.failures[f.status]; known != nil {
		known.Count++
		return
	}
	const most = 300 // bytes of a reason
	if len(f.reason) > most {
		f.reason = f.reason[:most]
	}
	t.failures[f.status] = &Failure{Status: f.status.String(), Count: 1, First: f.reason}
}

func (t *tally) reconnect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reconnects++
}

// counts returns the numbers of answers and errors so far.
func (t *tally) counts() (answers, failed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.allowed + t.denied, t.failed
}
