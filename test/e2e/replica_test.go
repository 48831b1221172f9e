package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// countedLimit is a limit that no test reaches. What is left of it shows how often its bucket was charged.
const countedLimit = 10_000

var countingRules = fmt.Sprintf(`
domain: sample
authz:
  anonymous: allow
  access: [{ path: { prefix: /count } }]
  limits: [{ actions: [{ path: }] }]
descriptors:
  - { key: path, value: /count/*, rate_limit: &limit { unit: year, requests_per_unit: %d, algorithm: fixed_window } }
  - { key: action, value: claim_reward, descriptors: [{ key: device, rate_limit: *limit }] }
`, countedLimit)

// TestReplicaKilled kills one of two replicas without a warning (SIGKILL), as a crash does. Only calls in flight at
// that moment fail. No call is sent twice, and no request is charged twice.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	grpc, overHTTP := func(s *service) int { return s.grpcPort }, func(s *service) int { return s.httpPort }
	for _, c := range []struct {
		file    string
		port    int // of extauthz in the file
		of      func(*service) int
		edits   []edit
		stat    string
		request call
	}{
		{"envoy/envoy.yaml", 8081, grpc, []edit{without(ratelimitFilter)}, "ext_authz", get("/count/a")},
		{"envoy/envoy.yaml", 8081, grpc, []edit{without(extAuthz)}, "ratelimit", claim("a")},
		{"envoy/http-ext_authz.yaml", 8080, overHTTP, nil, "ext_authz", get("/count/a")},
	} {
		for name, pace := range map[string]pace{
			"1 client":              {clients: 1},
			"16 clients":            {clients: 16},
			"240 requests a second": {clients: 16, rate: 240},
		} {
			t.Run(fmt.Sprintf("%s, %s, %s", c.file, c.stat, name), func(t *testing.T) {
				t.Parallel()
				redis := testenv.Redis(t)
				root, _ := rulesDirectory(t, countingRules)
				environment := []string{"RUNTIME_ROOT=" + root, serverSecret, "REDIS_URL=redis://" + redis.Addr,
					"REDIS_TIMEOUT=" + longTimeout, "AUTHZ_HTTP_SOURCE_HEADER=x-envoy-source"}
				dies, stays := startService(t, environment...), startService(t, environment...)
				endpoint := fmt.Sprintf("socket_address: { address: 127.0.0.1, port_value: %d }", c.port)
				envoy := startEnvoyWith(t, c.file,
					testenv.Ports{8000: testenv.Port(t, application(t)), c.port: c.of(dies)},
					append(c.edits, instead(endpoint, endpoint+`
              - endpoint:
                  address:
                    `+strings.Replace(endpoint, strconv.Itoa(c.port), strconv.Itoa(c.of(stays)), 1)))...)

				const requests = 1000
				failed, inFlight := envoy.load(t, requests, pace, c.request, dies.Kill)
				errors := envoy.Stat("cluster.application." + c.stat + ".error")
				if most := min(inFlight, pace.clients-1); errors > most { // one client kills
					t.Errorf("%d calls failed, want at most the %d in flight when the replica was killed", errors, most)
				}
				if c.stat == "ext_authz" && failed != errors || c.stat == "ratelimit" && failed != 0 {
					t.Errorf("%d requests failed because of %d calls", failed, errors)
				}
				last := envoy.do(t, c.request)
				if sent := envoy.Stat("cluster.extauthz.upstream_rq_total"); sent > requests+1 {
					t.Errorf("%d calls were sent for %d requests", sent, requests+1)
				}
				if charged := countedLimit - left(t, last); charged > requests+1 || charged < requests+1-errors {
					t.Errorf("%d of %d requests were charged, and %d calls failed", charged, requests+1, errors)
				}
				// On a busy machine the requests take longer than base_ejection_time. Then Envoy takes it out again.
				if envoy.Stat("cluster.extauthz.outlier_detection.ejections_enforced_total") == 0 {
					t.Error("Envoy has not taken the replica out")
				}
				t.Logf("%d of %d calls failed, %d were in flight, %d were repeated", errors, requests, inFlight,
					envoy.Stat("cluster.extauthz.upstream_rq_retry"))
			})
		}
	}
}

// pace is how requests are made.
type pace struct {
	clients int // at once
	rate    int // requests a second; 0: as many as are answered
}

// load makes requests at a pace, and does something in between, after a third of the requests. It returns how many
// answers are not 200, and how many requests were in flight meanwhile. Those are all that had no answer when it began,
// and that began before the first answer to a later request.
func (p *proxy) load(t *testing.T, requests int, pace pace, c call, meanwhile func()) (failed, inFlight int) {
	t.Helper()
	type request struct{ begun, answered time.Time }
	made := make([]request, requests)
	var next, not200 atomic.Int64
	var begin, end time.Time // of meanwhile
	var once sync.Once
	start := time.Now()
	var all sync.WaitGroup
	for range pace.clients {
		all.Go(func() {
			for n := int(next.Add(1) - 1); n < requests; n = int(next.Add(1) - 1) {
				if pace.rate > 0 {
					<-time.After(time.Until(start.Add(time.Second * time.Duration(n) / time.Duration(pace.rate))))
				}
				if n > requests/3 {
					once.Do(func() {
						begin = time.Now()
						meanwhile()
						end = time.Now()
					})
				}
				made[n].begun = time.Now()
				if a := p.do(t, c); a.status != http.StatusOK {
					not200.Add(1)
				}
				made[n].answered = time.Now()
			}
		})
	}
	all.Wait()
	noticed := time.Now()
	for _, r := range made {
		if r.begun.After(end) && r.answered.Before(noticed) {
			noticed = r.answered
		}
	}
	for _, r := range made {
		if r.answered.After(begin) && r.begun.Before(noticed) {
			inFlight++
		}
	}
	return int(not200.Load()), inFlight
}

// left returns what is left of the limit of a request.
func left(t *testing.T, a answer) int {
	t.Helper()
	match := regexp.MustCompile(`;r=(\d+)`).FindStringSubmatch(a.header.Get("Ratelimit"))
	if match == nil {
		t.Fatalf("no RateLimit header in %v", a.header)
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
