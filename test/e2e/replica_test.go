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

	"github.com/extauthz/extauthz/internal/testenv"
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
		for _, clients := range []int{1, 16} {
			t.Run(fmt.Sprintf("%s, %s, %d clients", c.file, c.stat, clients), func(t *testing.T) {
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
				failed := envoy.load(t, requests, clients, c.request, dies.Kill)
				errors := envoy.Stat("cluster.application." + c.stat + ".error")
				if errors > clients-1 {
					t.Errorf("%d calls failed, want at most the %d in flight when the replica was killed", errors, clients-1)
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
				if n := envoy.Stat("cluster.extauthz.outlier_detection.ejections_enforced_total"); n != 1 {
					t.Errorf("Envoy took %d replicas out, want 1", n)
				}
				t.Logf("%d of %d calls failed, %d were repeated", errors, requests,
					envoy.Stat("cluster.extauthz.upstream_rq_retry"))
			})
		}
	}
}

// load makes requests from several clients, and does something in between, after a third of the requests. It returns
// how many answers are not 200.
func (p *proxy) load(t *testing.T, requests int64, clients int, c call, meanwhile func()) (failed int) {
	t.Helper()
	var begun, not200 atomic.Int64
	var once sync.Once
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := begun.Add(1); n <= requests; n = begun.Add(1) {
				if n > requests/3 {
					once.Do(meanwhile)
				}
				if a := p.do(t, c); a.status != http.StatusOK {
					not200.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(not200.Load())
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
