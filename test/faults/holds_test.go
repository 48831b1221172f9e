package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
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

const (
	slots    = 8   // how many requests may run at once
	estimate = 100 // what a request reserves of the budgets; it costs that much at most
	holdTTL  = 3 * time.Second
	// unsynced is how long a Redis with appendfsync everysec can have answers that it has not written.
	unsynced = 2 * time.Second
)

// holdRules limit how many requests run at once, and what they cost in a year, by two algorithms.
const holdRules = `
domain: faults
descriptors:
  - key: slots
    rate_limit: { algorithm: concurrency, requests_per_unit: 8, on_store_error: deny, hold: &hold { ttl: 3s } }
  - key: bucket
    rate_limit: { unit: year, requests_per_unit: BUDGET, algorithm: token_bucket, on_store_error: deny, hold: *hold }
  - key: window
    rate_limit:
      { unit: year, requests_per_unit: BUDGET, algorithm: sliding_window_counter, on_store_error: deny, hold: *hold }
`

// TestHoldsOfTheKilled kills clients at random, and replicas or Redis (SIGKILL). An observer beside them counts the
// requests that run at once, and what they cost. Neither passes its limit, except by what Redis had not written. After
// the last request, all slots are free within one ttl, and the budgets have been charged what the requests have cost,
// or what those have reserved that were killed.
func TestHoldsOfTheKilled(t *testing.T) {
	persist := func(sync string) []string { return []string{"--appendonly", "yes", "--appendfsync", sync} }
	for name, c := range map[string]struct {
		redis    []string
		longest  time.Duration // run of a request
		perFault int           // requests from one fault to the next
		fault    func(*holders)
		lossy    bool // Redis can lose what it has answered
	}{
		"replicas":                    {nil, 30 * time.Millisecond, 80, (*holders).killReplica, false},
		"Redis, appendfsync always":   {persist("always"), 500 * time.Millisecond, 20, (*holders).killRedis, false},
		"Redis, appendfsync everysec": {persist("everysec"), 500 * time.Millisecond, 20, (*holders).killRedis, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := 3
			if long() {
				faults = 40
			}
			h := startHolders(t, faults*c.perFault*estimate, c.longest, testenv.Redis(t, c.redis...))
			stop := h.start(2 * slots)
			for range faults {
				h.awaitEnded(c.perFault)
				c.fault(h)
			}
			h.awaitSpent()
			stop()
			h.awaitFree(time.Now())
			h.check(c.lossy)
		})
	}
}

// holders are clients whose requests hold a slot and a part of each budget, and what they ask.
type holders struct {
	*testing.T
	budget   int
	longest  time.Duration // run of a request
	redis    *testenv.RedisServer
	root     string
	replicas [three]atomic.Pointer[testenv.RunningService]
	ids      atomic.Int64 // of holds

	mu             sync.Mutex
	running, peak  int // requests that run: now, and at most at any time
	ended, unended int // requests that were settled, and those that nothing has settled
	refused        int // requests that were refused because Redis did not decide
	begun          []begun
	least, most    int // what each budget must have been charged at least, and at most
	// lostSlots and lostUnits bound what Redis may have lost: holds of running requests, and costs.
	lostSlots, lostUnits int
}

// begun is a request that has begun to run.
type begun struct {
	at   time.Time
	cost int
}

func startHolders(t *testing.T, budget int, longest time.Duration, redis *testenv.RedisServer) *holders {
	t.Helper()
	rules := strings.ReplaceAll(holdRules, "BUDGET", strconv.Itoa(budget))
	h := &holders{T: t, budget: budget, longest: longest, redis: redis, root: testenv.RulesRootWith(t, rules)}
	for i := range h.replicas {
		h.startReplica(i)
	}
	return h
}

func (h *holders) startReplica(i int) {
	h.Helper()
	h.replicas[i].Store(testenv.Service(h.T, binary, "RUNTIME_ROOT="+h.root, "REDIS_URL=redis://"+h.redis.Addr,
		"REDIS_TIMEOUT=1s", "RESPONSE_DYNAMIC_METADATA=true", "LOG_LEVEL=WARN"))
}

// killReplica kills a replica at random, and starts another one in its place.
func (h *holders) killReplica() {
	i := rand.IntN(len(h.replicas)) //nolint:gosec // a random fault
	h.addUnknown(i)
	h.replicas[i].Load().Kill()
	h.startReplica(i)
}

// addUnknown adds what a replica has refused, and Redis may have reserved.
func (h *holders) addUnknown(i int) {
	n := testenv.Metric(h.T, debugURL(h.replicas[i].Load()), "extauthz_store_unknown_outcome_total")
	h.count(func() { h.most += estimate * int(n) })
}

// killRedis kills Redis, and starts it with what it has written.
func (h *holders) killRedis() {
	h.mu.Lock()
	since := time.Now().Add(-unsynced)
	for i := len(h.begun) - 1; i >= 0 && h.begun[i].at.After(since); i-- {
		h.lostUnits += h.begun[i].cost
	}
	h.lostSlots = max(h.lostSlots, h.running)
	h.mu.Unlock()
	h.redis.Restart()
}

// start runs clients until stop is called. Each is killed after a while, and another one begins in its place.
func (h *holders) start(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(h.Context())
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				h.live(ctx)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// live is the life of a client that asks one replica, until the replica or the client is killed.
func (h *holders) live(ctx context.Context) {
	const longestLife = 10 * time.Second
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // a random load
	ctx, cancel := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(longestLife))))
	defer cancel()
	replica := h.replicas[random.IntN(len(h.replicas))].Load()
	service, end, err := connect(ctx, testenv.Loopback(replica.GRPCPort))
	if err != nil { // the replica is dead
		pause(ctx, 10*time.Millisecond)
		return
	}
	defer end()
	for ctx.Err() == nil && h.request(ctx, service, random) {
	}
}

// connect returns a connection that ends with ctx in the way of a client that is killed.
func connect(ctx context.Context, addr string) (rlsv3.RateLimitServiceClient, func(), error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	kill := context.AfterFunc(ctx, func() {
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset, as for unread data
		_ = conn.Close()
	})
	var once sync.Once
	client, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (only net.Conn, err error) {
			err = net.ErrClosed
			once.Do(func() { only, err = conn, nil })
			return only, err
		}))
	if err != nil {
		return nil, nil, err
	}
	return rlsv3.NewRateLimitServiceClient(client), func() { kill(); _, _ = client.Close(), conn.Close() }, nil
}

// request reserves, runs, and settles. It returns false if the connection or the client is at its end.
func (h *holders) request(ctx context.Context, service rlsv3.RateLimitServiceClient, random *rand.Rand) bool {
	const late = holdTTL / 3 // a caller with a late answer must not begin: its hold may expire while it runs
	id, cost, asked := strconv.FormatInt(h.ids.Add(1), 10), 1+random.IntN(estimate), time.Now()
	resp, err := ask(ctx, service, "hold.reserve", id, 1, estimate)
	switch {
	case err != nil: // it may be held, until it expires
		h.count(func() { h.unended++; h.most += estimate })
		pause(ctx, 10*time.Millisecond)
		return false
	case decider(resp) == "policy_deny":
		h.count(func() { h.refused++ })
		pause(ctx, 20*time.Millisecond)
		return true
	case resp.GetOverallCode() != rlsv3.RateLimitResponse_OK:
		pause(ctx, 20*time.Millisecond)
		return true
	case decider(resp) != "store":
		h.Errorf("%s has granted a hold, want only the store", decider(resp))
	}
	if time.Since(asked) > late {
		h.count(func() { h.unended++; h.least += estimate; h.most += estimate })
		return true
	}
	h.count(func() {
		h.begun = append(h.begun, begun{time.Now(), cost})
		h.running++
		h.peak = max(h.peak, h.running)
	})
	pause(ctx, time.Duration(random.Int64N(int64(h.longest))))
	h.count(func() { h.running-- })
	if ctx.Err() != nil || time.Since(asked) > 2*late {
		h.count(func() { h.unended++; h.least += estimate; h.most += estimate })
		return true
	}
	resp, err = ask(ctx, service, "hold.settle", id, 0, uint64(cost))
	h.count(func() {
		h.least += cost
		switch {
		case err != nil || decider(resp) != "store": // settled, or it expires
			h.unended++
			h.most += estimate
		case time.Since(asked) > holdTTL: // it may have expired before
			h.most += estimate + cost
		default:
			h.ended++
			h.most += cost
		}
	})
	return err == nil
}

func (h *holders) count(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// ask asks for a slot and for units of both budgets, in one request. Without a key for a hold, it is a plain request.
func ask(ctx context.Context, service rlsv3.RateLimitServiceClient, key, id string, slot, units uint64) (
	*rlsv3.RateLimitResponse, error,
) {
	req := &rlsv3.RateLimitRequest{Domain: "faults"}
	for i, limit := range []string{"slots", "bucket", "window"} {
		d := &commonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64([]uint64{slot, units, units}[i])}
		d.Entries = []*commonv3.RateLimitDescriptor_Entry{{Key: limit, Value: "all"}}
		if key != "" {
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: id})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return service.ShouldRateLimit(ctx, req)
}

// decider returns what has decided, as in the log of decisions.
func decider(resp *rlsv3.RateLimitResponse) string {
	return resp.GetDynamicMetadata().GetFields()["decided_by"].GetStringValue()
}

// peek returns what is used or held of the slots and of both budgets.
func (h *holders) peek() (used [3]int, err error) {
	service, end, err := connect(h.Context(), testenv.Loopback(h.replicas[0].Load().GRPCPort))
	if err != nil {
		return used, err
	}
	defer end()
	resp, err := ask(h.Context(), service, "", "", 0, 0)
	if err == nil && decider(resp) != "store" && decider(resp) != "denial_cache" {
		err = fmt.Errorf("decided by %q, want the store", decider(resp))
	}
	if err != nil {
		return used, err
	}
	for i, limit := range []int{slots, h.budget, h.budget} {
		used[i] = limit - int(resp.GetStatuses()[i].GetLimitRemaining())
	}
	return used, nil
}

// awaitEnded returns after n more requests have ended.
func (h *holders) awaitEnded(n int) {
	ended := func() (n int) {
		h.count(func() { n = h.ended })
		return n
	}
	target := ended() + n
	testenv.Eventually(h.T, func() error {
		if n := ended(); n < target {
			return fmt.Errorf("%d have ended, want %d", n, target)
		}
		return nil
	}, "requests to end")
}

// awaitSpent returns after the budgets have no room for another request.
func (h *holders) awaitSpent() {
	testenv.Eventually(h.T, func() error {
		pause(h.Context(), 50*time.Millisecond)
		used, err := h.peek()
		if err == nil && used[1]+estimate <= h.budget && used[2]+estimate <= h.budget {
			err = fmt.Errorf("%d and %d of %d are used", used[1], used[2], h.budget)
		}
		return err
	}, "the budgets to be spent")
}

// awaitFree returns after all slots are free. The last request was at a time; a hold of it may live for one ttl.
func (h *holders) awaitFree(last time.Time) {
	const slack = 2 * time.Second // calls of killed clients that replicas still decide: REDIS_TIMEOUT, and a busy machine
	testenv.Eventually(h.T, func() error {
		asked := time.Now()
		used, err := h.peek()
		if err != nil || used[0] == 0 {
			return err
		}
		if after := asked.Sub(last); after > holdTTL+slack {
			h.Fatalf("%d slots are held %v after the last request, want none after %v", used[0], after, holdTTL)
		}
		return fmt.Errorf("%d slots are held", used[0])
	}, "all slots to be free")
}

// check compares what ran and what was charged with the limits. lossy means that Redis may have lost something.
func (h *holders) check(lossy bool) {
	if !lossy {
		h.lostSlots, h.lostUnits = 0, 0
	}
	var used [3]int
	testenv.Eventually(h.T, func() (err error) {
		used, err = h.peek()
		return err
	}, "Redis to show the buckets")
	for i := range h.replicas {
		h.addUnknown(i)
	}
	cost := 0
	for _, r := range h.begun {
		cost += r.cost
	}
	h.Logf("%d requests have run, at most %d at once, and have cost %d of %d; %d were settled, %d were not, "+
		"%d were refused without Redis, which may have lost %d holds and %d units; %d and %d are charged, want %d to %d",
		len(h.begun), h.peak, cost, h.budget, h.ended, h.unended,
		h.refused, h.lostSlots, h.lostUnits, used[1], used[2], h.least, h.most)
	if h.peak > slots+h.lostSlots {
		h.Errorf("%d requests ran at once, want at most %d and %d", h.peak, slots, h.lostSlots)
	}
	if cost > h.budget+h.lostUnits {
		h.Errorf("the requests have cost %d, want at most %d and %d", cost, h.budget, h.lostUnits)
	}
	for _, n := range used[1:] {
		if n < min(h.least, h.budget)-h.lostUnits || n > h.most {
			h.Errorf("%d units are charged, want %d to %d, less %d that Redis may have lost", n, h.least, h.most, h.lostUnits)
		}
	}
}
