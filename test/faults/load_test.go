package faults

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/test/testenv"
)

// rate is the number of requests a second.
const rate = 240

// load sends requests to replicas and keeps what became of them.
type load struct {
	t        *testing.T
	services []rlsv3.RateLimitServiceClient
	sent     atomic.Int64
	pending  sync.WaitGroup

	mu       sync.Mutex
	requests []*request
}

// request is one request of a load.
type request struct {
	client         client
	replica        int
	sent, received time.Time // received is zero until there is an answer
	allowed        bool
	decidedBy      string // what decided, as in the log of decisions
}

// newLoad returns a load of these replicas. It sends nothing yet.
func newLoad(t *testing.T, replicas ...*replica) *load {
	t.Helper()
	l := &load{t: t}
	for _, r := range replicas {
		conn, err := grpc.NewClient(testenv.Loopback(r.GRPCPort), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		l.services = append(l.services, rlsv3.NewRateLimitServiceClient(conn))
	}
	return l
}

// ask sends one request and waits for the answer.
func (l *load) ask(replica int, c client) (allowed bool) {
	r := &request{client: c, replica: replica, sent: time.Now()}
	l.mu.Lock()
	l.requests = append(l.requests, r)
	l.mu.Unlock()
	l.sent.Add(1)
	allowed, decidedBy := l.call(replica, c, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	r.received, r.allowed, r.decidedBy = time.Now(), allowed, decidedBy
	return allowed
}

// peek asks Redis what is left of a client's limit, and charges nothing but what the replica owes.
func (l *load) peek(replica int, c client) {
	testenv.Eventually(l.t, func() error {
		if _, decidedBy := l.call(replica, c, wrapperspb.UInt64(0)); decidedBy == "last_known_state" {
			return errors.New("Redis did not answer in time")
		}
		return nil
	}, "Redis to show a bucket")
}

func (l *load) call(replica int, c client, hits *wrapperspb.UInt64Value) (allowed bool, decidedBy string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := l.services[replica].ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: "faults",
		Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries:    []*commonv3.RateLimitDescriptor_Entry{{Key: "client", Value: c.String()}},
			HitsAddend: hits,
		}},
	})
	if err != nil {
		l.t.Errorf("replica %d, %v: %v", replica, c, err)
		return false, ""
	}
	decidedBy = resp.GetDynamicMetadata().GetFields()["decided_by"].GetStringValue()
	return resp.GetOverallCode() == rlsv3.RateLimitResponse_OK, decidedBy
}

// exhaust sends requests of a client until one is denied.
func (l *load) exhaust(replica int, c client) {
	for l.ask(replica, c) {
	}
}

// start sends requests at a steady rate, whether or not earlier ones are answered, until stop is called. Of twelve
// requests, ten are of the client large. Each goes to the next of these replicas.
func (l *load) start(replicas ...int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	l.pending.Go(func() {
		begin, tick := time.Now(), time.NewTicker(time.Second/rate)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for due := int(time.Since(begin) * rate / time.Second); n < due; n++ {
				to, c := replicas[n%len(replicas)], large
				if turn := n / len(replicas) % 12; turn >= 10 {
					c = small + client(turn-10)
				}
				l.pending.Go(func() { l.ask(to, c) })
			}
		}
	})
	return func() {
		cancel()
		l.pending.Wait()
	}
}

// await returns after n more requests were sent.
func (l *load) await(n int) {
	target := l.sent.Load() + int64(n)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for l.sent.Load() < target {
		<-tick.C
	}
}

// count returns how many requests of a client fulfil a condition.
func (l *load) count(c client, holds func(*request) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		if r.client == c && holds(r) {
			n++
		}
	}
	return n
}

func (l *load) admitted(c client) int { return l.count(c, func(r *request) bool { return r.allowed }) }

// inFlight returns how many requests of a client wait for their answer.
func (l *load) inFlight(c client) int {
	return l.count(c, func(r *request) bool { return r.received.IsZero() })
}

// deciders returns what decided the requests of a client, and how many each.
func (l *load) deciders(c client) map[string]int {
	n := map[string]int{}
	for _, r := range l.requests {
		if r.client == c {
			n[r.decidedBy]++
		}
	}
	return n
}

// logTimes logs how long the answers took. Envoy waits for 20 ms by default.
func (l *load) logTimes() {
	const envoyWaits = 20 * time.Millisecond
	var took []time.Duration
	late := 0
	for _, r := range l.requests {
		d := r.received.Sub(r.sent)
		took = append(took, d)
		if d > envoyWaits {
			late++
		}
	}
	slices.Sort(took)
	at := func(share float64) time.Duration {
		return took[int(share*float64(len(took)-1))].Round(10 * time.Microsecond)
	}
	l.t.Logf("%s: %d answers: half within %v, 99 of 100 within %v, all within %v; %d later than %v",
		l.t.Name(), len(took), at(0.5), at(0.99), at(1), late, envoyWaits)
}
