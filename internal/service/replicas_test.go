package service

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// replicasRule has a limit that does not come back during a test.
const replicasRule = `
domain: replicas
descriptors:
  - {key: client, rate_limit: {unit: year, requests_per_unit: 12}}
`

// counting starts a replica that shares a Redis.
func counting(t *testing.T, root string, server *testenv.RedisServer, environ ...string) *testenv.RunningService {
	t.Helper()
	return testenv.Service(t, program, append(environ, "RUNTIME_ROOT="+root, "REDIS_URL="+server.Addr,
		"REDIS_TIMEOUT=10s")...)
}

// replicasOf returns how many replicas a service divides limits by.
func replicasOf(t *testing.T, s *testenv.RunningService) float64 {
	t.Helper()
	return testenv.Metric(t, "http://"+testenv.Loopback(s.DebugPort), "extauthz_fallback_replicas")
}

func awaitReplicas(t *testing.T, want float64, services ...*testenv.RunningService) {
	t.Helper()
	testenv.Eventually(t, func() error {
		for i, s := range services {
			if n := replicasOf(t, s); n != want {
				return fmt.Errorf("replica %d has %v", i, n)
			}
		}
		return nil
	}, fmt.Sprintf("%d replicas to divide limits by %v", len(services), want))
}

// admits returns how many of some requests for one client a service admits.
func admits(t *testing.T, s *testenv.RunningService, requests int) (admitted int) {
	t.Helper()
	for range requests {
		const request = `{"domain":"replicas","descriptors":[{"entries":[{"key":"client","value":"a"}]}]}`
		if code := postJSON(t, testenv.Loopback(s.HTTPPort), request); code == http.StatusOK {
			admitted++
		}
	}
	return admitted
}

// TestReplicasCountThemselves starts replicas with and without LOCAL_FALLBACK_REPLICAS, ends one and kills another. In
// an outage, each admits its share. One that starts then has read no number, so it admits the whole limit.
func TestReplicasCountThemselves(t *testing.T) {
	t.Parallel()
	root, server := testenv.RulesRootWith(t, replicasRule), testenv.Redis(t)
	first := counting(t, root, server)
	awaitReplicas(t, 1, first)
	for environ, want := range map[string]float64{
		"LOCAL_FALLBACK_REPLICAS=1": 1, "LOCAL_FALLBACK_REPLICAS=7": 7, "COMPATIBILITY=strict": 1,
	} {
		other := counting(t, root, server, environ)
		if got := replicasOf(t, other); got != want {
			t.Errorf("%s: it divides limits by %v, want %v", environ, got, want)
		}
		if err := other.Terminate(); err != nil {
			t.Error(err)
		}
		// A replica that counts would leave an outdated entry.
		if entries, err := server.Do("ZCARD", "rl:replicas"); entries != "1" || err != nil {
			t.Errorf("%s: the set has %s entries (%v), want that of the first replica", environ, entries, err)
		}
	}
	second, third, killed := counting(t, root, server), counting(t, root, server), counting(t, root, server)
	awaitReplicas(t, 4, killed)
	awaitReplicas(t, 4, first, second, third)
	killed.Kill()
	if err := third.Terminate(); err != nil {
		t.Error(err)
	}
	awaitReplicas(t, 3, first, second) // the killed one counts for 30 s
	server.Kill()
	late := counting(t, root, server)
	for _, c := range []struct {
		name string
		*testenv.RunningService
		want int
	}{{"the first one", first, 4}, {"the second one", second, 4}, {"one that has read no number", late, 12}} {
		if got := admits(t, c.RunningService, 20); got != c.want {
			t.Errorf("in an outage, %s of three replicas admits %d of 12, want %d", c.name, got, c.want)
		}
	}
	awaitReplicas(t, 1, late)
}

// TestReplicasMayNotCount starts a replica whose user of Redis lacks a right. It divides limits by 1, and one line of
// the log has the ACL.
func TestReplicasMayNotCount(t *testing.T) {
	t.Parallel()
	root, server := testenv.RulesRootWith(t, replicasRule), testenv.Redis(t)
	rules := "on >secret ~rl:* +evalsha +eval +script|load +get +set +del +time +ping +info +hello +auth"
	if _, err := server.Do(append([]string{"ACL", "SETUSER", "limited"}, strings.Fields(rules)...)...); err != nil {
		t.Fatal(err)
	}
	s := counting(t, root, server, "REDIS_AUTH=limited:secret")
	const line = `level=WARN msg="cannot count the replicas that share Redis; `
	const acl = "the user needs ACL SETUSER <user> on " +
		"><password> ~rl:* +evalsha +eval +script|load +get +set +del +time +ping +info +hello +auth +zadd +zcard "
	testenv.Eventually(t, func() error {
		if !strings.Contains(s.Output(), line) {
			return fmt.Errorf("the log is\n%s", s.Output())
		}
		return nil
	}, "a warning")
	if got := admits(t, s, 20); got != 12 {
		t.Errorf("Redis admits %d of 12", got)
	}
	awaitReplicas(t, 1, s)
	if out := s.Output(); strings.Count(out, line) != 1 || strings.Count(out, acl) != 1 {
		t.Errorf("want one line with the ACL in\n%s", out)
	}
}
