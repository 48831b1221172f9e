package service

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/test/testenv"
)

// modesRules has two rules whose buckets share a slot by hash_tag, and one of windows of a second.
const modesRules = `domain: modes
descriptors:
  - key: tenant
    rate_limit: {unit: day, requests_per_unit: 2, hash_tag: tenant}
    descriptors:
      - key: path
        rate_limit: {unit: day, requests_per_unit: 3, hash_tag: tenant}
  - key: burst
    rate_limit: {unit: second, requests_per_unit: 1000}
authz:
  credentials: [{api_key: {header: x-api-key}}]
`

// modesRequest is a request to all three buckets.
const modesRequest = `{"domain":"modes","descriptors":[{"entries":[{"key":"tenant","value":"a"}]},` +
	`{"entries":[{"key":"tenant","value":"a"},{"key":"path","value":"/p"}]},{"entries":[{"key":"burst"}]}]}`

func modesRoot(t *testing.T) string {
	t.Helper()
	root := testenv.RulesRoot(t)
	if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), []byte(modesRules), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// postJSON sends a request to /json, and returns the status.
func postJSON(t *testing.T, addr, body string) int {
	t.Helper()
	res, err := http.Post("http://"+addr+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

// TestRedisModes runs the service and `extauthz keys` with each kind of Redis: with passwords, and in a cluster with
// TLS and a client certificate.
func TestRedisModes(t *testing.T) {
	t.Parallel()
	single, second, sentinels := testenv.Redis(t), testenv.Redis(t), testenv.Sentinels(t)
	authority, dir := testenv.NewAuthority(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority.Write(t, file("ca.pem"))
	testenv.WriteCertificate(t, authority.Issue(t, "127.0.0.1", time.Hour), file("cert.pem"), file("cert.key"))
	cluster := testenv.Cluster(t, "--tls-port", testenv.FreePortArg, "--tls-cluster", "yes", "--tls-replication", "yes",
		"--tls-cert-file", file("cert.pem"), "--tls-key-file", file("cert.key"), "--tls-ca-cert-file", file("ca.pem"))
	var tlsAddrs []string
	for _, m := range cluster.Masters {
		tlsAddrs = append(tlsAddrs, "127.0.0.1:"+m.Option("--tls-port"))
	}
	for _, one := range sentinels.Sentinels {
		for _, words := range [][]string{
			{"SENTINEL", "SET", sentinels.Name, "auth-pass", "master-password"},
			{"ACL", "SETUSER", "default", ">sentinel-password"},
		} {
			if _, err := one.Do(words...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := sentinels.Master.Do("CONFIG", "SET", "requirepass", "master-password"); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]*settings.Settings{
		"single": configured(func(s *settings.Settings) { s.Redis.Main.URL = single.Addr }),
		"sentinel": configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "SENTINEL"
			s.Redis.Main.URL = sentinels.Addrs()
			s.Redis.Main.Auth = "master-password"
			s.Redis.Main.SentinelAuth = "default:sentinel-password"
		}),
		"cluster with TLS": configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "CLUSTER"
			s.Redis.Main.URL = strings.Join(tlsAddrs, ",")
			s.Redis.Main.TLS = true
			s.Redis.CACert = file("ca.pem")
			s.Redis.Cert = file("cert.pem")
			s.Redis.Key = file("cert.key")
		}),
		"second Redis": configured(func(s *settings.Settings) {
			s.Redis.Main.URL = single.Addr
			s.Redis.UsePerSecond = true
			s.Redis.PerSecond.URL = second.Addr
			s.Limits.KeyPrefix = "2:"
			s.Redis.PerSecond.Timeout = 10 * time.Second
		}),
	} {
		t.Run(name, func(t *testing.T) {
			env.Rules.Root, env.Redis.Main.Timeout, env.Keys.Secret = modesRoot(t), 10*time.Second, "a server secret of a test"
			key := keyPattern.FindString(keys(t, env, "create", "--redis", "--owner", "shop"))
			if list := keys(t, env, "list", "--redis"); !strings.Contains(list, "shop") {
				t.Errorf("the list of keys: %s", list)
			}
			env.Limits.StoreErrorPolicy = ratelimit.Deny
			_, httpAddr, debugAddr, out := start(t, env)
			for i, want := range []int{200, 200, 429, 429} {
				if got := postJSON(t, httpAddr, modesRequest); got != want {
					t.Errorf("request %d: %d, want %d\n%s", i, got, want, out)
				}
			}
			if got := checkAs(t, httpAddr, key); got != 200 {
				t.Errorf("a request with an API key: %d, want 200\n%s", got, out)
			}
			_, metrics := get(t, "http://"+debugAddr+"/metrics")
			for _, want := range []string{
				"extauthz_store_up 1\n", `store="main"} 1` + "\n", "extauthz_redis_call_duration_seconds_bucket{",
			} {
				if !strings.Contains(metrics, want) {
					t.Errorf("no %s in the metrics", want)
				}
			}
		})
	}
	// The charge of a denied request that was given back has left a note beside the bucket.
	buckets, err := second.Do("KEYS", "2:rl:[^r]*")
	if notes, _ := second.Do("KEYS", "2:rl:r{*"); len(strings.Fields(buckets)) != 1 || err != nil ||
		notes != "" && !strings.HasSuffix(notes, "}"+strings.TrimPrefix(buckets, "2:")) {
		t.Errorf("the second Redis has the buckets %q (%v) and the notes %q, want that of the window of a second",
			buckets, err, notes)
	}
	// The two buckets of the tenant are in one slot, so each request was one script call for both.
	var slots []string
	for _, m := range cluster.Masters {
		if found, err := m.Do("KEYS", "*{a}*"); err == nil && found != "" {
			slots = append(slots, found)
		}
	}
	if len(slots) != 1 || len(strings.Fields(slots[0])) != 2 {
		t.Errorf("the buckets with hash_tag are %q, want two at one node", slots)
	}
}

// TestRedisModesMistakes checks that a wrong form of REDIS_URL, a wrong password and a wrong type are named at the
// start, with what to write instead.
func TestRedisModesMistakes(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "--requirepass", "swordfish")
	plain, sentinels := testenv.Redis(t), testenv.Sentinels(t)
	for _, c := range []struct {
		env  *settings.Settings
		want string
	}{
		{configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "SENTINEL"
			s.Redis.Main.URL = "redis://:swordfish@host:6379"
		}),
			"REDIS_URL: want the name of the master and the addresses of sentinels, such as mymaster,sentinel-1:26379"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "SENTINEL"
			s.Redis.Main.URL = "sentinel-1:26379,sentinel-2:26379"
		}),
			"REDIS_URL: want the name of the master"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "CLUSTER"
			s.Redis.Main.URL = "redis-1,redis-2"
		}),
			"REDIS_URL: want the addresses of nodes of the cluster, such as redis-1:6379,redis-2:6379"},
		{configured(func(s *settings.Settings) { s.Redis.Main.URL = "redis-1:6379,redis-2:6379" }),
			"A list is for Sentinel and Cluster"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "CLUSTER"
			s.Redis.Main.URL = plain.Addr
		}), "this Redis is no cluster: set REDIS_TYPE=SINGLE"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "CLUSTER"
			s.Redis.Main.URL = server.Addr
		}), "set REDIS_AUTH to the password"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "SENTINEL"
			s.Redis.Main.URL = "another-" + sentinels.Addrs()
		}),
			"the sentinels know no master of the name with which REDIS_URL begins"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.URL = plain.Addr
			s.Redis.UsePerSecond = true
		}), "REDIS_PERSECOND=true needs REDIS_PERSECOND_URL"},
		{configured(func(s *settings.Settings) {
			s.Redis.UsePerSecond = true
			s.Redis.PerSecond.URL = plain.Addr
		}),
			"REDIS_PERSECOND=true needs REDIS_URL, too"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.URL = plain.Addr
			s.Redis.UsePerSecond = true
			s.Redis.PerSecond.URL = server.Addr
		}),
			"set REDIS_PERSECOND_AUTH to the password"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.URL = server.Addr
			s.Redis.UsePerSecond = true
			s.Redis.PerSecond.URL = "127.0.0.1:1"
		}),
			"set REDIS_AUTH to the password"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.URL = server.Addr
			s.Redis.UsePerSecond = true
			s.Redis.PerSecond.URL = server.Addr
		}),
			"set REDIS_AUTH to the password"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.URL = server.Addr
			s.Redis.UsePerSecond = true
			s.Redis.PerSecond.URL = server.Addr
		}),
			"set REDIS_PERSECOND_AUTH to the password"},
		{configured(func(s *settings.Settings) {
			s.Redis.Main.URL = plain.Addr
			s.Redis.UsePerSecond = true
			s.Redis.PerSecond.URL = "a,b"
		}),
			"REDIS_PERSECOND_URL: it has a comma"},
	} {
		c.env.Rules.Root, c.env.Redis.Main.Timeout = testenv.RulesRoot(t), 10*time.Second
		c.env.Listeners.Port, c.env.Listeners.GRPCPort, c.env.Listeners.DebugPort = 0, 0, 0
		code, _, stderr := runProgram(t, c.env, "", "serve")
		if code != exitFailed || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "swordfish") {
			t.Errorf("%v: exit code %d, want %d and %q without a password\n%s", c.env, code, exitFailed, c.want, stderr)
		}
	}
}

// TestRedisFailover kills a master while requests go on. None of them fails: on_store_error decides until the new
// master does. Although the new master has lost all buckets, limits that were used up before stay so.
func TestRedisFailover(t *testing.T) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		sentinels := testenv.Sentinels(t)
		sentinels.Watch()
		env := configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "SENTINEL"
			s.Redis.Main.URL = sentinels.Addrs()
		})
		failOver(t, env, sentinels.Master, sentinels.Replica)
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testenv.Cluster(t, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
		master := cluster.Masters[1]
		replica := cluster.AddReplica(master)
		failOver(t, configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "CLUSTER"
			s.Redis.Main.URL = cluster.Addrs()
		}), master, replica)
	})
}

// failOver kills the master of a Redis that has a replica for it. Requests go to 20 buckets meanwhile, so that each
// master of a cluster has some of them.
func failOver(t *testing.T, env *settings.Settings, master, replica *testenv.RedisServer) {
	t.Helper()
	env.Rules.Root, env.Redis.Main.Timeout = testenv.RulesRootWith(t, `
domain: sample
descriptors:
  - {key: api_key, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 5, algorithm: token_bucket}}
`), 50*time.Millisecond
	_, httpAddr, debugAddr, out := start(t, env)
	next, right, exhausted := 0, time.Time{}, false
	const usedUp = 6 // so that each master of a cluster most probably has some of them
	daily := func(i int) int {
		request := `{"domain":"sample","descriptors":[{"entries":[{"key":"day","value":"client %d"}]}]}`
		return postJSON(t, httpAddr, fmt.Sprintf(request, i%usedUp))
	}
	await := func(up string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			next = (next + 1) % 20
			request := strings.Replace(rls.Example, "demo", fmt.Sprint("client ", next), 1)
			if code := postJSON(t, httpAddr, request); code != http.StatusOK && code != http.StatusTooManyRequests {
				t.Errorf("a request: %d, want 200 or 429\n%s", code, out)
			}
			if code := daily(next); exhausted && code != http.StatusTooManyRequests {
				t.Errorf("a limit that is used up: %d, want 429", code)
			}
			if role, err := replica.Do("ROLE"); err == nil && strings.HasPrefix(role, "master") && right.IsZero() {
				right = time.Now()
			}
			if _, metrics := get(t, "http://"+debugAddr+"/metrics"); !strings.Contains(metrics, "extauthz_store_up "+up+"\n") {
				return fmt.Errorf("extauthz_store_up is not %s", up)
			}
			return nil
		}, "extauthz_store_up to be "+up)
	}
	await("1")
	for i := range usedUp {
		testenv.Eventually(t, func() error {
			if code := daily(i); code != http.StatusTooManyRequests {
				return fmt.Errorf("%d", code)
			}
			return nil
		}, "a limit to be used up")
	}
	master.Kill()
	for _, command := range [][]string{ // as if nothing had been replicated
		{"CONFIG", "SET", "replica-read-only", "no"}, {"FLUSHALL"}, {"CONFIG", "SET", "replica-read-only", "yes"},
	} {
		if answer, err := replica.Do(command...); err != nil || answer != "OK" {
			t.Fatalf("%v: %s, %v", command, answer, err)
		}
	}
	exhausted = true
	await("0")
	await("1")
	for i := range usedUp {
		if code := daily(i); code != http.StatusTooManyRequests {
			t.Errorf("a limit that was used up before the failover: %d, want 429", code)
		}
	}
	t.Logf("Redis decides again %v after the replica became the master", time.Since(right).Round(time.Millisecond))
}

// TestRedisHealth checks that REDIS_HEALTH_CHECK_ACTIVE_CONNECTION makes the service report NOT_SERVING while Redis
// does not answer, without any request.
func TestRedisHealth(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	server.Kill()
	_, httpAddr, _, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRoot(t)
		s.Redis.Main.URL = server.Addr
		s.Redis.Main.Timeout = 10 * time.Second
		s.Redis.HealthCheck = true
	}))
	reports := func(want int) {
		t.Helper()
		testenv.Eventually(t, func() error {
			if got, body := get(t, "http://"+httpAddr+"/healthcheck"); got != want {
				return fmt.Errorf("%d %s", got, body)
			}
			return nil
		}, fmt.Sprint("/healthcheck to report ", want))
	}
	if got, _ := get(t, "http://"+httpAddr+"/healthcheck"); got != 500 {
		t.Errorf("without Redis: /healthcheck is %d, want 500", got)
	}
	server.Restart()
	reports(200)
	server.Kill()
	reports(500)
	server.Restart()
	reports(200)
}
