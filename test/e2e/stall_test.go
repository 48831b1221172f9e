package e2e

import (
	"fmt"
	"testing"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestStallClosesNoConnection: while Redis stands still, Envoy resets a thousand calls at its timeout. The service does
// not take that for an attack: no connection ends. When Redis answers again, so does the service.
//
// With COMPATIBILITY=strict, the service waits for Redis as long as Envoy waits for the service. Otherwise it answers 5
// ms before, and Envoy resets only calls that are late on a busy machine.
func TestStallClosesNoConnection(t *testing.T) {
	t.Parallel()
	const timeout = "0.025s"
	root, _ := rulesDirectory(t, "domain: sample\nauthz: {anonymous: allow}\n"+
		"descriptors: [{key: masked_remote_address, rate_limit: {unit: hour, requests_per_unit: 1000000}}]\n")
	for _, c := range []struct {
		compatibility string
		resets        int // the least number
	}{{"default", 0}, {"strict", 1000}} {
		t.Run(c.compatibility, func(t *testing.T) {
			t.Parallel()
			redis := testenv.Redis(t)
			s := startService(t, "RUNTIME_ROOT="+root, "REDIS_URL=redis://"+redis.Addr, "COMPATIBILITY="+c.compatibility)
			envoy := startEnvoy(t, s.grpcPort, without(extAuthz), func(t *testing.T, config string) string {
				before, filter, after := cutFilter(t, config, ratelimitFilter)
				return before + instead("timeout: "+longTimeout, "timeout: "+timeout)(t, filter) + after
			})
			send := func(requests, clients int) (answered int) {
				before := envoy.ratelimitStat("ok")
				if failed, _ := envoy.load(t, requests, pace{clients: clients}, get("/"), func() {}); failed > 0 {
					t.Errorf("%d requests failed, although one without an answer of the service may pass", failed)
				}
				return envoy.ratelimitStat("ok") - before
			}
			healthy := func() error {
				const some = 10
				if n := send(some, 1); n < some {
					return fmt.Errorf("%d of %d calls were answered", n, some)
				}
				return nil
			}
			testenv.Eventually(t, healthy, "answers to all calls")
			// Each stall is shorter than a second, after which the service no longer waits for Redis.
			const stalls, requests, clients = 4, 500, 64
			resets := func() int { return envoy.Stat("cluster.extauthz.upstream_rq_tx_reset") }
			for n := 0; n < stalls || resets() < c.resets && !t.Failed(); n++ {
				redis.Pause()
				send(requests, clients)
				redis.Resume()
				testenv.Eventually(t, healthy, "answers to all calls again")
			}
			t.Logf("Envoy has reset %d calls", resets())
			if n := envoy.Stat("cluster.extauthz.upstream_cx_destroy"); n > 0 {
				t.Errorf("%d connections have ended", n)
			}
			for reason := range guard.Reasons {
				if n := s.metric(t, fmt.Sprintf("extauthz_cut_total{port=%q,reason=%q}", "grpc", reason)); n > 0 {
					t.Errorf("extauthz_cut_total: %d of %v", n, reason)
				}
			}
		})
	}
}
