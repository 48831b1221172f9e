package e2e

import (
	"errors"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestGoAway sends requests through an Envoy whose connections to the service end every 200 ms for their age. No call
// is lost, with both transports. Envoy's health checks, which have a connection of their own, succeed meanwhile.
//
// Only the rate limit filter is used, as in TestTLSRenewal.
func TestGoAway(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, "domain: sample\nauthz: {anonymous: allow}\n"+
		"descriptors: [{key: masked_remote_address, rate_limit: {unit: hour, requests_per_unit: 1000000}}]\n")
	for _, transport := range []string{"grpc-go", "native"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := startService(t, "RUNTIME_ROOT="+root, "GRPC_TRANSPORT="+transport, "GRPC_MAX_CONNECTION_AGE=200ms")
			envoy := startEnvoy(t, s.grpcPort, without(extAuthz))
			const enough, connections = 1000, 5
			sent := int64(0)
			testenv.Eventually(t, func() error {
				const requests, clients = 200, 10
				if failed, _ := envoy.load(t, requests, pace{clients: clients}, get("/"), func() {}); failed > 0 {
					t.Fatalf("%d of %d requests failed", failed, requests)
				}
				if sent += requests; sent < enough || envoy.Stat("cluster.extauthz.upstream_cx_total") < connections {
					return errors.New("not enough requests and connections yet")
				}
				return nil
			}, "a thousand requests over some connections")
			envoy.checkNoFailures(t)
			if n := envoy.ratelimitStat("ok"); int64(n) != sent {
				t.Errorf("%d calls were answered, want %d", n, sent)
			}
			if ok, failed := envoy.Stat("cluster.extauthz.health_check.success"),
				envoy.Stat("cluster.extauthz.health_check.failure"); ok == 0 || failed > 0 {
				t.Errorf("%d health checks succeeded, and %d failed", ok, failed)
			}
		})
	}
}
