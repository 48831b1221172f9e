package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestCredentialPlaces sends a key in every place that the policy lists. The application does not receive the key,
// but it receives everything else that was in that place.
func TestCredentialPlaces(t *testing.T) {
	t.Parallel()
	s := &shop{issuer: newIssuer(t), keys: keysInFile(t)}
	key := s.keys.create(t, "--owner", "ann", "--plan", "gold", "--scope", "users:delete")
	early := s.keys.create(t, "--owner", "ann", "--not-before", "1d")
	other := s.keys.create(t, "--owner", "bob")
	root, _ := rulesDirectory(t, policy(t, s.issuer))
	s.service = startService(t, append(s.keys.environment, "RUNTIME_ROOT="+root, "LOG_LEVEL=DEBUG")...)
	s.proxy = startEnvoy(t, s.service.grpcPort)

	header := func(name, value string) [2]string { return [2]string{name, value} }
	for _, c := range []struct {
		name   string
		call   call
		status int
		target string      // at the application; default: that of the call
		saw    http.Header // nil values: absent
	}{
		{name: "a header", status: 200, call: get("/x", header("x-api-key", key)), saw: http.Header{"X-Api-Key": nil}},
		{name: "a header in capitals", status: 200, call: get("/x", header("X-API-KEY", key)),
			saw: http.Header{"X-Api-Key": nil}},
		{name: "a scheme", status: 200, call: get("/x", header("authorization", "ApiKey "+key)),
			saw: http.Header{"Authorization": nil}},
		{name: "a scheme in capitals", status: 200, call: get("/x", header("authorization", "APIKEY "+key)),
			saw: http.Header{"Authorization": nil}},
		{name: "a query", status: 200, call: get("/x?a=1&api_key=" + key + "&b=%26"), target: "/x?a=1&b=%26"},
		{name: "a query with an encoded name", status: 200, call: get("/x?%61pi_key=" + key), target: "/x"},
		{name: "a cookie", status: 200, call: get("/x", header("cookie", "a=1; api_key="+key+"; b=2")),
			saw: http.Header{"Cookie": {"a=1; b=2"}}},
		{name: "a cookie alone", status: 200, call: get("/x", header("cookie", "api_key="+key)),
			saw: http.Header{"Cookie": nil}},
		{name: "another scheme beside it", status: 200,
			call: get("/x", header("x-api-key", key), header("authorization", "Basic YQ==")),
			saw:  http.Header{"X-Api-Key": nil, "Authorization": {"Basic YQ=="}}},
		{name: "two places: the first in the policy decides", status: 200,
			call: get("/x?api_key="+other, header("x-api-key", key)), target: "/x",
			saw: http.Header{"X-Api-Key": nil}},
		{name: "a scope", status: 200,
			call: call{method: http.MethodDelete, path: "/users/1", header: [][2]string{{"x-api-key", key}}}},
		{name: "no scope", status: 403,
			call: call{method: http.MethodDelete, path: "/users/1", header: [][2]string{{"x-api-key", other}}}},

		{name: "an unknown key", status: 403, call: get("/x", header("x-api-key", "unknown"))},
		{name: "a key with a typo", status: 403, call: get("/x", header("x-api-key", key[:len(key)-1]+"!"))},
		{name: "a key that is not valid yet", status: 403, call: get("/x", header("x-api-key", early))},
		{name: "a key twice", status: 403, call: get("/x", header("x-api-key", key), header("x-api-key", key))},
		{name: "two keys", status: 403, call: get("/x", header("x-api-key", key), header("x-api-key", other))},
		{name: "two keys in one header", status: 403, call: get("/x", header("x-api-key", key+","+other))},
		{name: "a key twice in a query", status: 403, call: get("/x?api_key=" + key + "&api_key=" + key)},
		{name: "a key twice in cookies", status: 403, call: get("/x", header("cookie", "api_key="+key+"; api_key=x"))},
		{name: "a valid key after an invalid one", status: 403, call: get("/x?api_key="+key, header("x-api-key", "x"))},
		{name: "a huge key", status: 403, call: get("/x", header("x-api-key", strings.Repeat("x", 50<<10)))},
		{name: "a key that is not UTF-8", status: 403, call: get("/x", header("x-api-key", "\xff\xfe"))},
		{name: "an empty key", status: 401, call: get("/x", header("x-api-key", ""))},
		{name: "a cookie of another name", status: 401, call: get("/x", header("cookie", "xapi_key="+key))},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.do(t, c.call)
			if a.status != c.status {
				t.Fatalf("got %d %s, want %d", a.status, a.body, c.status)
			}
			if c.status != http.StatusOK {
				if seen := a.saw(); seen != nil {
					t.Errorf("the application received %v, want nothing", seen)
				}
				return
			}
			if c.target == "" {
				c.target = c.call.path
			}
			if want := c.call.method + " " + c.target + "\n"; a.body != want {
				t.Errorf("the application received %q, want %q", a.body, want)
			}
			wantHeaders(t, "the application", a.saw(), c.saw)
			wantHeaders(t, "the application", a.saw(), http.Header{
				"X-Auth-Owner": {"ann"}, "X-Auth-Plan": {"gold"}, "X-Auth-Method": {"api_key"}, "X-Auth-Key-Id": {keyID(t, key)},
			})
		})
	}
	for _, secret := range []string{key, early, other, strings.TrimPrefix(serverSecret, "API_KEY_SECRET=")} {
		if strings.Contains(s.service.Output(), secret) {
			t.Errorf("the log has the secret %s", secret)
		}
	}
}

// TestKeysUnderTraffic creates, rotates and revokes keys while these and other keys are in use. Each change takes
// effect and stays in effect, and no other key gets a wrong answer.
func TestKeysUnderTraffic(t *testing.T) {
	for _, c := range []struct {
		name string
		keys func(t *testing.T) *apiKeys
	}{
		{"file", keysInFile},
		{"Redis", func(t *testing.T) *apiKeys { return keysInRedis(testenv.Redis(t).Addr) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keys := c.keys(t)
			steady := keys.create(t, "--owner", "steady")
			root, _ := rulesDirectory(t, policy(t, newIssuer(t)))
			envoy := startEnvoy(t, startService(t, append(keys.environment, "RUNTIME_ROOT="+root)...).grpcPort)
			with := func(key string) call { return get("/", [2]string{"x-api-key", key}) }

			// In the background: requests with a valid key, and requests with an unknown one.
			ctx, stop := context.WithCancel(t.Context())
			var traffic sync.WaitGroup
			defer traffic.Wait()
			defer stop()
			always := func(key string, want int) {
				pace := time.NewTicker(10 * time.Millisecond) // leaves processor time for the other requests
				defer pace.Stop()
				for ; ctx.Err() == nil; <-pace.C {
					if a := envoy.do(t, with(key)); a.status != want {
						t.Errorf("a key without changes: got %d %s, want %d", a.status, a.body, want)
					}
				}
			}
			traffic.Go(func() { always(steady, http.StatusOK) })
			traffic.Go(func() { always("unknown", http.StatusForbidden) })

			// becomes waits until requests with the key get this status, and checks that the status does not change again.
			becomes := func(what, key string, want int) {
				t.Helper()
				awaitStatus(t, envoy, with(key), want)
				for range 5 {
					if a := envoy.do(t, with(key)); a.status != want {
						t.Errorf("%s: got %d after it had been %d", what, a.status, want)
					}
				}
			}
			first := keys.create(t, "--owner", "ann")
			becomes("a new key", first, http.StatusOK)

			second := keys.run(t, "rotate", keyID(t, first), "--grace", "1h")
			becomes("the second key", second, http.StatusOK)
			becomes("the first key, in its grace period", first, http.StatusOK)

			third := keys.run(t, "rotate", keyID(t, second), "--grace", "0s", "--end-previous")
			becomes("the third key", third, http.StatusOK)
			becomes("the second key, without a grace period", second, http.StatusForbidden)
			becomes("the first key, after the second rotation", first, http.StatusForbidden)

			keys.run(t, "revoke", keyID(t, third))
			becomes("a revoked key", third, http.StatusForbidden)
			wantHeaders(t, "the application", envoy.do(t, with(steady)).saw(), http.Header{"X-Auth-Owner": {"steady"}})
		})
	}
}

// TestKeysWhileRedisIsAway checks that the service keeps its last copy of the keys while Redis is unavailable.
func TestKeysWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	keys := keysInRedis(redis.Addr)
	key, revoked := keys.create(t, "--owner", "ann"), keys.create(t, "--owner", "bob")
	keys.run(t, "revoke", keyID(t, revoked))
	root, _ := rulesDirectory(t, policy(t, newIssuer(t)))
	envoy := startEnvoy(t, startService(t, append(keys.environment, "RUNTIME_ROOT="+root)...).grpcPort)

	redis.Kill()
	check := func(when string) {
		t.Helper()
		if a := envoy.do(t, get("/", [2]string{"x-api-key", key})); a.status != http.StatusOK {
			t.Errorf("%s, a key: got %d %s, want 200", when, a.status, a.body)
		}
		if a := envoy.do(t, get("/", [2]string{"x-api-key", revoked})); a.status != http.StatusForbidden {
			t.Errorf("%s, a revoked key: got %d, want 403", when, a.status)
		}
	}
	check("while Redis is unavailable")
	// Redis starts again without its data. This does not revoke the keys.
	redis.Restart()
	check("after Redis has started empty")
	recent := keys.create(t, "--owner", "carl")
	awaitStatus(t, envoy, get("/", [2]string{"x-api-key", recent}), http.StatusOK)
}

// TestRedisUserGrantsNothing has an attacker with an API key who can also write to Redis. The attacker changes the
// record of their own key, and restores the record of a revoked key. The application never receives another owner,
// neither from a running replica nor from one that starts afterwards.
func TestRedisUserGrantsNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	keys := keysInRedis(server.Addr)
	own, revoked := keys.create(t, "--owner", "mallory"), keys.create(t, "--owner", "fired")
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	before, err := client.HGetAll(t.Context(), "rl:keys").Result()
	if err != nil {
		t.Fatal(err)
	}
	keys.run(t, "revoke", keyID(t, revoked))
	root, _ := rulesDirectory(t, policy(t, newIssuer(t)))
	start := func() *proxy {
		return startEnvoy(t, startService(t, append(keys.environment, "RUNTIME_ROOT="+root)...).grpcPort)
	}
	running := start()
	awaitStatus(t, running, get("/", [2]string{"x-api-key", own}), http.StatusOK)

	forged := strings.Replace(before[keyID(t, own)], `"owner":"mallory"`, `"owner":"root"`, 1)
	if err := client.HSet(t.Context(), "rl:keys", keyID(t, own), forged, keyID(t, revoked),
		before[keyID(t, revoked)]).Err(); err != nil {
		t.Fatal(err)
	}
	fresh := start()
	if a := fresh.do(t, get("/", [2]string{"x-api-key", own})); a.status != http.StatusServiceUnavailable {
		t.Errorf("a new replica, the forged record: got %d %s, want 503", a.status, a.saw())
	}
	if a := fresh.do(t, get("/", [2]string{"x-api-key", revoked})); a.status != http.StatusServiceUnavailable {
		t.Errorf("a new replica, the revoked key: got %d %s, want 503", a.status, a.saw())
	}
	a := running.do(t, get("/", [2]string{"x-api-key", own}))
	wantHeaders(t, "the application", a.saw(), http.Header{"X-Auth-Owner": {"mallory"}})
	if a := running.do(t, get("/", [2]string{"x-api-key", revoked})); a.status != http.StatusForbidden {
		t.Errorf("a running replica, the revoked key: got %d, want 403", a.status)
	}
}
