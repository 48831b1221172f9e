package service

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestLeasesOfThreeReplicas asks three processes with one Redis for a hot key with a lease, and kills one of them. They
// admit no more than the limit, and no less than the limit without the lease of the one that was killed. Redis runs few
// scripts.
func TestLeasesOfThreeReplicas(t *testing.T) {
	t.Parallel()
	const limit, lease, callers = 2000, 10, 4
	for _, algorithm := range []string{"fixed_window", "sliding_window_counter"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			rules := fmt.Sprintf("domain: shop\ndescriptors:\n  - key: tenant\n    rate_limit: {unit: year, "+
				"requests_per_unit: %d, algorithm: %s, lease: %d}\n", limit, algorithm, lease)
			root := testenv.RulesRootWith(t, rules)
			var replicas []*testenv.RunningService
			for range 3 {
				replicas = append(replicas, testenv.Service(t, program, "RUNTIME_ROOT="+root, "REDIS_URL="+server.Addr,
					"REDIS_TIMEOUT=10s", "DENIAL_CACHE=false"))
			}
			before := scripts(t, server)
			var asked, admitted, unanswered atomic.Int64
			// ask sends requests to a replica until it denies one or is killed, at most so many in all.
			ask := func(r *testenv.RunningService, most int64) {
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for n := int64(0); n < most/callers; n++ {
							asked.Add(1)
							res, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/json", r.HTTPPort), "application/json",
								strings.NewReader(`{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"hot"}]}]}`))
							if err != nil {
								unanswered.Add(1)
								return
							}
							_ = res.Body.Close()
							if res.StatusCode != http.StatusOK {
								return
							}
							admitted.Add(1)
						}
					})
				}
				all.Wait()
			}
			var all sync.WaitGroup
			for _, r := range replicas {
				all.Go(func() { ask(r, 400) })
			}
			all.Wait()
			all.Go(func() { ask(replicas[0], limit) })
			testenv.Eventually(t, func() error {
				if n := admitted.Load(); n < 1300 {
					return fmt.Errorf("%d admitted", n)
				}
				return nil
			}, "the replica to have a lease")
			replicas[0].Kill()
			all.Wait()
			for _, r := range replicas[1:] {
				all.Go(func() { ask(r, limit) })
			}
			all.Wait()
			for _, r := range replicas[1:] { // what is left of their leases
				ask(r, 4*lease)
			}
			calls := scripts(t, server) - before
			t.Logf("%d scripts for %d requests, %d admitted of %d", calls, asked.Load(), admitted.Load(), limit)
			if n := admitted.Load(); n > limit || n < limit-lease-unanswered.Load() {
				t.Errorf("%d admitted of %d, %d unanswered", n, limit, unanswered.Load())
			}
			if calls > asked.Load()/4 {
				t.Errorf("%d scripts for %d requests", calls, asked.Load())
			}
		})
	}
}

// scripts returns how many scripts a Redis has run.
func scripts(t *testing.T, server *testenv.RedisServer) (calls int64) {
	t.Helper()
	info, err := server.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	count := regexp.MustCompile(`cmdstat_(?:evalsha|eval|fcall):calls=(\d+)`)
	for _, found := range count.FindAllStringSubmatch(info, -1) {
		n, err := strconv.ParseInt(found[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		calls += n
	}
	return calls
}
