package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// Each request has a budget of its own, of which it reserves an estimate. The application tells what it costs.
const holdBudget, holdEstimate, holdCost = 1000, 100, 7

// holdRules: one slot for each request that runs, and a budget for each. The budget denied has no room for an estimate.
const holdRules = `domain: shop
descriptors:
  - key: tokens
    rate_limit: {name: tokens, unit: year, requests_per_unit: 1000, algorithm: fixed_window, hold: {ttl: 5s}}
  - key: tokens
    value: denied
    rate_limit: {name: denied, unit: year, requests_per_unit: 50, algorithm: fixed_window, hold: {ttl: 5s}}
  - {key: unlimited, rate_limit: {unlimited: true}}
  - key: slots
    rate_limit: {name: slots, algorithm: concurrency, requests_per_unit: 1000, hold: {ttl: 5s}}
`

// holdPolicy has ext_authz reserve what holdReserves asks for otherwise.
const holdPolicy = `authz:
  anonymous: allow
  limits:
    - actions: [{request_headers: {header: x-case, key: tokens}}]
      cost: {number: 100}
      hold: {request_header: x-hold-id}
    - actions: [{generic_key: {key: slots, value: all}}]
      hold: {request_header: x-hold-id}
`

// holdLines are what docs/cookbook/envoy.yaml lacks. RESERVES is a place for what the rate limit filter reserves. A
// timeout in quotes is not lengthened for a slow machine.
const holdLines = `# Here: filters before ext_authz
- name: envoy.filters.http.header_mutation
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
    mutations:
      request_mutations:
        - append:
            header: { key: x-hold-id, value: "%UNIQUE_ID%" }
            append_action: OVERWRITE_IF_EXISTS_OR_ADD
# Here: routes
- match: { path: /unlimited }
  route: { cluster: application }
  typed_per_filter_config:
    envoy.filters.http.ext_authz:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
      disabled: true
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits: [{ actions: [{ generic_key: { descriptor_key: unlimited, descriptor_value: "true" } }] }]
- match: { prefix: /late }
  route: { cluster: application, "timeout": 1s }
  typed_per_filter_config: &limits
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits:
RESERVES
        - actions: &settleTokens
            - request_headers: { header_name: x-case, descriptor_key: tokens }
            - request_headers: { header_name: x-hold-id, descriptor_key: hold.settle }
          hits_addend: { format: "%RESP(x-cost)%" }
          apply_on_stream_done: true
        - actions: *settleTokens
          hits_addend: { number: 0 }
          apply_on_stream_done: true
        - actions:
            - generic_key: { descriptor_key: slots, descriptor_value: all }
            - request_headers: { header_name: x-hold-id, descriptor_key: hold.settle }
          hits_addend: { number: 0 }
          apply_on_stream_done: true
- match: { prefix: / }
  route: { cluster: application, "timeout": 0s }
  typed_per_filter_config: *limits
`

const holdReserves = `
        - actions:
            - request_headers: { header_name: x-case, descriptor_key: tokens }
            - request_headers: { header_name: x-hold-id, descriptor_key: hold.reserve }
          hits_addend: { number: 100 }
        - actions:
            - generic_key: { descriptor_key: slots, descriptor_value: all }
            - request_headers: { header_name: x-hold-id, descriptor_key: hold.reserve }
`

// The moments at which a client leaves.
const (
	stays               = iota
	leavesAtApplication // when the application has its request
	leavesInBody        // when it has the headers of the answer
)

// TestHoldsEndOnce has requests end in all ways: the application streams, resets, or is too late, and clients leave at
// each moment. Each hold ends once: it is settled with the cost that the application told, it expires, or it is undone.
func TestHoldsEndOnce(t *testing.T) {
	for _, reserves := range []string{"ratelimit", "ext_authz"} {
		for _, store := range []string{"memory", "redis"} {
			t.Run(reserves+" reserves, "+store, func(t *testing.T) {
				t.Parallel()
				h := startHolds(t, reserves, store)
				h.leaveInTheApplication()
				h.leaveAtAnyTime()
				h.leaveOnTheWay("the answer is on its way", h.answers.Lock, h.answers.Unlock)
				h.leaveOnTheWay("the reserve is on its way", h.service.Pause, h.service.Resume)
				if h.redis != nil {
					h.leaveOnTheWay("Redis decides", h.redis.Pause, h.redis.Resume)
				}
				h.check()
				if h.ends("expired", "tokens") == 0 {
					t.Error("no hold has expired, although clients left when the answer was on its way")
				}
			})
		}
	}
}

// holds are the service, Envoy and the application, and what became of the requests.
type holds struct {
	*testing.T
	envoy   *proxy
	service *service
	redis   *testenv.RedisServer // nil for the embedded store
	// answered is Envoy's counter of reserves that were granted, and whose clients were there. It also counts requests
	// without a limit.
	answered  string
	unlimited int
	undone    int          // at least so many holds are undone
	answers   sync.RWMutex // answers of the service pass while it is not locked
	arrived   sync.Map     // a channel for each case, closed when the application has its request

	mu    sync.Mutex
	costs map[string][]int // by case, what it may be charged
}

func startHolds(t *testing.T, reserves, store string) *holds {
	t.Helper()
	h := &holds{T: t, answered: "cluster.application." + reserves + ".ok", costs: map[string][]int{}}
	rules, ratelimitReserves, edited := holdRules, holdReserves, without(extAuthz)
	if reserves == "ext_authz" {
		rules, ratelimitReserves = rules+holdPolicy, "\n"
		edited = func(_ *testing.T, config string) string { return config }
	}
	root, _ := rulesDirectory(t, rules)
	environment := []string{"RUNTIME_ROOT=" + root}
	if store == "redis" {
		h.redis = testenv.Redis(t)
		environment = append(environment, "REDIS_URL=redis://"+h.redis.Addr, "REDIS_TIMEOUT="+longTimeout)
	}
	h.service = startService(t, environment...)
	addr := testenv.Proxy(t, testenv.Loopback(h.service.grpcPort), func() (toServer, fromServer testenv.Pass) {
		return func([]byte) bool { return true }, func([]byte) bool {
			h.answers.RLock()
			defer h.answers.RUnlock()
			return true
		}
	})
	r := recipe{files: map[string]string{
		envoyLines: strings.Replace(holdLines, "\nRESERVES\n", ratelimitReserves, 1),
	}}
	config := shortTimeout.ReplaceAllString(edited(t, r.envoy(t)), "${1}timeout: "+longTimeout)
	envoy := testenv.Envoy(t, config, testenv.Ports{
		10000: 0, 8000: testenv.Port(t, testenv.UpstreamFunc(t, h.application)), 8081: testenv.Port(t, addr),
	})
	h.envoy = &proxy{EnvoyProxy: envoy, addr: envoy.Listener("ingress")}
	return h
}

// application answers in the way that the path names.
func (h *holds) application(w http.ResponseWriter, r *http.Request) {
	close(h.arrival(r.Header.Get("x-case")))
	how := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	flush := http.NewResponseController(w).Flush
	switch how {
	case "reset-before-headers":
		panic(http.ErrAbortHandler)
	case "silent":
		<-r.Context().Done()
		return
	case "no-cost":
		return
	case "slow":
		halt(r.Context())
	}
	w.Header().Set("x-cost", fmt.Sprint(holdCost))
	for range 3 {
		_, _ = io.WriteString(w, "data: part\n\n")
		_ = flush()
		switch how {
		case "reset-in-body":
			panic(http.ErrAbortHandler)
		case "silent-in-body":
			<-r.Context().Done()
			return
		case "slow":
			halt(r.Context())
		}
	}
}

// halt is the time between two parts of a slow answer.
func halt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
	defer cancel()
	<-ctx.Done()
}

func (h *holds) arrival(name string) chan struct{} {
	arrived, _ := h.arrived.LoadOrStore(name, make(chan struct{}))
	return arrived.(chan struct{})
}

// mayCost notes what a case may be charged: one of these costs.
func (h *holds) mayCost(name string, costs ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.costs[name] = costs
}

// send sends a request of a case and returns the status, or 0 without one.
func (h *holds) send(ctx context.Context, name, path string, http2 bool, leaves int) (status int) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	defer transport.CloseIdleConnections()
	req := h.envoy.request(h.T, get(path, [2]string{"x-case", name})).WithContext(ctx)
	if leaves == leavesAtApplication {
		go func() { // ends with the test if the request does not arrive
			select {
			case <-h.arrival(name):
			case <-h.Context().Done():
			}
			leave()
		}()
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if leaves == leavesInBody {
		leave()
	}
	_, _ = io.Copy(io.Discard, resp.Body) // the application may reset it
	return resp.StatusCode
}

// leaveInTheApplication sends requests whose reserve is answered before anything happens.
func (h *holds) leaveInTheApplication() {
	var clients sync.WaitGroup
	for _, c := range []struct {
		path    string
		leaves  int
		answers map[int]int // costs by status
	}{
		{"/whole", stays, map[int]int{200: holdCost}},
		{"/no-cost", stays, map[int]int{200: 0}},
		{"/reset-before-headers", stays, map[int]int{503: 0}},
		{"/reset-in-body", stays, map[int]int{200: holdCost}},
		{"/late/silent", stays, map[int]int{504: 0}},
		{"/late/silent-in-body", stays, map[int]int{200: holdCost, 504: 0}}, // on a slow machine, the headers are late
		{"/silent", leavesAtApplication, map[int]int{0: 0}},
		{"/silent-in-body", leavesInBody, map[int]int{200: holdCost}},
	} {
		for n := range 6 {
			name, http2 := fmt.Sprintf("%s %d", c.path, n), n%2 == 0
			clients.Go(func() {
				status := h.send(h.Context(), name, c.path, http2, c.leaves)
				cost, ok := c.answers[status]
				if !ok {
					h.Errorf("%s, HTTP/2 %v: got %d, want one of %v", name, http2, status, c.answers)
				}
				h.mayCost(name, cost)
			})
		}
	}
	for _, http2 := range []bool{false, true} {
		clients.Go(func() {
			h.mayCost("denied", 0)
			if got := h.send(h.Context(), "denied", "/whole", http2, stays); got != http.StatusTooManyRequests {
				h.Errorf("a denied request, HTTP/2 %v: got %d, want 429", http2, got)
			}
		})
	}
	clients.Wait()
}

// leaveAtAnyTime has clients leave at each moment from the beginning of their request to its end.
func (h *holds) leaveAtAnyTime() {
	const steps = 40
	took := time.Duration(0)
	for n := range steps {
		for _, http2 := range []bool{false, true} {
			name := fmt.Sprintf("any time %d %v", n, http2)
			ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
			if n > 0 {
				ctx, cancel = context.WithTimeout(h.Context(), took*time.Duration(n)/steps)
			}
			begin := time.Now()
			h.mayCost(name, 0, holdCost, holdEstimate)
			h.send(ctx, name, "/slow", http2, stays)
			if n == 0 {
				took = time.Since(begin)
			}
			cancel()
		}
	}
}

// leaveOnTheWay has clients leave while a stop keeps the answers to their reserves from Envoy.
func (h *holds) leaveOnTheWay(name string, stop, resume func()) {
	const n = 4
	h.await("Envoy to end its calls", func() error { return h.wantStat("cluster.extauthz.upstream_rq_active", 0) })
	resets, expired := h.envoy.Stat("cluster.extauthz.upstream_rq_tx_reset"), h.ends("expired", "slots")
	begin := time.Now()
	stop()
	resume = sync.OnceFunc(resume)
	defer resume()
	ctx, leave := context.WithCancel(h.Context())
	defer leave()
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			name := fmt.Sprintf("%s %d", name, i)
			h.mayCost(name, 0, holdEstimate)
			h.send(ctx, name, "/whole", i%2 == 0, stays)
		})
	}
	h.await("Envoy to ask", func() error { return h.wantStat("cluster.extauthz.upstream_rq_active", n) })
	if strings.Contains(name, "answer") {
		h.await("all holds", func() error {
			used := h.used("slots", []string{"all"})[0]
			if over := h.ends("expired", "slots") - expired; used+over < n { // on a slow machine, some have expired already
				return fmt.Errorf("%d slots are held, and %d have expired", used, over)
			}
			return nil
		})
	}
	leave()
	clients.Wait()
	h.await("Envoy to cancel its calls", func() error {
		return h.wantStat("cluster.extauthz.upstream_rq_tx_reset", resets+n)
	})
	if strings.HasPrefix(name, "Redis") {
		// The service answers this call on the same connection, without Redis, after it has read that the others are reset.
		if got := h.send(h.Context(), "unlimited", "/unlimited", false, stays); got != http.StatusOK {
			h.Errorf("a request without a limit: got %d, want 200", got)
		}
		if strings.HasSuffix(h.answered, ".ratelimit.ok") {
			h.unlimited++
		}
		resume()
		if _, err := h.redis.Do("PING"); err != nil {
			h.Error(err)
		}
		const patience = 900 * time.Millisecond // of the service; then Redis may reserve what the service does not know
		if time.Since(begin) < patience {
			h.undone += n
			for i := range n {
				h.mayCost(fmt.Sprintf("%s %d", name, i), 0)
			}
		}
	}
	resume()
}

func (h *holds) await(what string, cond func() error) {
	h.Helper()
	testenv.Eventually(h.T, cond, what)
}

func (h *holds) wantStat(name string, want int) error {
	if got := h.envoy.Stat(name); got != want {
		return fmt.Errorf("%s is %d, want %d", name, got, want)
	}
	return nil
}

// ends returns how many holds of a limit have ended in a way.
func (h *holds) ends(how, limit string) int {
	h.Helper()
	const series = "extauthz_ratelimit_hold_ends_total{domain=%q,end=%q,limit=%q,rule=%q}"
	return h.service.metric(h.T, fmt.Sprintf(series, "shop", how, limit, limit))
}

// used returns what is used or held of the buckets of some values.
func (h *holds) used(key string, values []string) (used []int) {
	h.Helper()
	const most = 64 // descriptors of a request
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	type descriptor struct {
		Entries []entry `json:"entries"`
		Hits    int     `json:"hits_addend"`
	}
	for some := range slices.Chunk(values, most) {
		var descriptors []descriptor
		for _, v := range some {
			descriptors = append(descriptors, descriptor{Entries: []entry{{key, v}}})
		}
		body, err := json.Marshal(map[string]any{"domain": "shop", "descriptors": descriptors})
		if err != nil {
			h.Fatal(err)
		}
		resp, err := http.Post(h.service.http+"/json", "application/json", bytes.NewReader(body))
		if err != nil {
			h.Fatal(err)
		}
		var answer struct {
			Statuses []struct{ LimitRemaining int }
		}
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&answer), resp.Body.Close())
		if err != nil || len(answer.Statuses) != len(some) {
			h.Fatalf("a peek: got %d, %+v, %v; want %d statuses", resp.StatusCode, answer, err, len(some))
		}
		for i, s := range answer.Statuses {
			limit := holdBudget
			if some[i] == "denied" {
				limit = 50
			}
			used = append(used, limit-s.LimitRemaining)
		}
	}
	return used
}

// check waits until no hold is live, and compares how they have ended, and what was charged.
func (h *holds) check() {
	names := slices.Sorted(maps.Keys(h.costs))
	h.await("all holds to have ended, each once", func() error {
		for _, active := range []string{"http.ingress.downstream_rq_active", "cluster.extauthz.upstream_rq_active"} {
			if err := h.wantStat(active, 0); err != nil {
				return err
			}
		}
		if held := h.used("slots", []string{"all"})[0]; held > 0 {
			return fmt.Errorf("%d slots are held", held)
		}
		estimates := 0
		for i, used := range h.used("tokens", names) {
			if costs := h.costs[names[i]]; !slices.Contains(costs, used) {
				return fmt.Errorf("%s was charged %d, want one of %v", names[i], used, costs)
			}
			if used == holdEstimate {
				estimates++
			}
		}
		if expired := h.ends("expired", "tokens"); expired != estimates {
			return fmt.Errorf("%d holds have expired, and %d requests were charged their estimate", expired, estimates)
		}
		if got, want := h.ends("settled", "tokens"), h.envoy.Stat(h.answered)-h.unlimited; got != want {
			return fmt.Errorf("%d holds were settled, of %d requests whose reserve was answered", got, want)
		}
		return nil
	})
	for _, end := range []string{"settled", "expired", "undone"} {
		tokens, slots := h.ends(end, "tokens"), h.ends(end, "slots")
		h.Logf("%d requests: %d holds have ended: %s", len(names), tokens, end)
		if tokens != slots {
			h.Errorf("%s: %d holds of tokens and %d slots, which a request reserves together", end, tokens, slots)
		}
	}
	if n := h.ends("undone", "tokens"); n < h.undone {
		h.Errorf("%d holds were undone, but %d clients left before the answer to their reserve", n, h.undone)
	}
	if n := h.ends("unknown", "tokens"); n > 0 {
		h.Errorf("%d settlements found no hold, although each request settles once", n)
	}
}
