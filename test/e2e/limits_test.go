package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

const sampleRules = "internal/service/sample/sample.yaml"

// TestRouteLimits checks the sample rules with the routes of the sample configuration, in memory and in Redis.
// ext_authz is removed, because it limits the key of the sample to 5 requests a minute.
func TestRouteLimits(t *testing.T) {
	for _, c := range []struct {
		name        string
		environment func(t *testing.T) []string
	}{
		{"memory, nothing configured", func(*testing.T) []string { return nil }},
		{"Redis", func(t *testing.T) []string {
			root, _ := rulesDirectory(t, testenv.RepoFile(t, sampleRules))
			return []string{"RUNTIME_ROOT=" + root, serverSecret, "REDIS_URL=redis://" + testenv.Redis(t).Addr,
				"REDIS_TIMEOUT=" + longTimeout}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			envoy := startEnvoy(t, startService(t, c.environment(t)...).grpcPort, without(extAuthz))
			t.Run("responses", func(t *testing.T) { testAnswers(t, envoy) })
			t.Run("limits", func(t *testing.T) { testLimits(t, envoy) })
			t.Run("two posts a second", func(t *testing.T) { testPosts(t, envoy) })
			t.Run("gRPC", func(t *testing.T) { testGRPC(t, envoy) })
			t.Run("hostile values", func(t *testing.T) { testHostileValues(t, envoy) })
			t.Run("no device", func(t *testing.T) { testNoDevice(t, envoy) })
			envoy.checkNoFailures(t)
		})
	}
}

// claim returns a request that a device may make 5 times a week.
func claim(device string) call {
	return call{method: http.MethodPost, path: "/rewards", header: [][2]string{{"x-device-id", device}}}
}

// testAnswers checks each response: five requests are allowed, and the sixth is denied.
func testAnswers(t *testing.T, envoy *proxy) {
	const week = 7 * 24 * 60 * 60
	policy := fmt.Sprintf(`"rewards-per-device";q=5;w=%d`, week)
	for left := 4; left >= 0; left-- {
		a := envoy.do(t, claim("answers"))
		if want := fmt.Sprintf(`"rewards-per-device";r=%d;t=`, left); a.status != http.StatusOK ||
			!strings.HasPrefix(a.header.Get("RateLimit"), want) || a.header.Get("RateLimit-Policy") != policy {
			t.Errorf("with %d left: got %d and %v; want 200, ratelimit: %s..., ratelimit-policy: %s",
				left, a.status, a.header, want, policy)
		}
		if got := a.header.Get("Retry-After"); got != "" {
			t.Errorf("with %d left: got retry-after: %s; want none", left, got)
		}
		if a.body != "POST /rewards\n" {
			t.Errorf("with %d left: got body %q; want the application's", left, a.body)
		}
	}

	a := envoy.do(t, claim("answers"))
	if a.status != http.StatusTooManyRequests {
		t.Fatalf("the sixth: got %d, want 429", a.status)
	}
	if got := a.header.Get("RateLimit"); !strings.HasPrefix(got, `"rewards-per-device";r=0;t=`) {
		t.Errorf(`the sixth: got ratelimit: %s; want "rewards-per-device";r=0;t=...`, got)
	}
	if got := a.header.Get("RateLimit-Policy"); got != policy {
		t.Errorf("the sixth: got ratelimit-policy: %s; want %s", got, policy)
	}
	// The first request expires a week after it was made. The test may have taken up to a minute since.
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < week-60 || seconds > week {
		t.Errorf("the sixth: got retry-after: %s; want a week less the duration of the test", a.header.Get("Retry-After"))
	}
	if got := a.header.Get("X-Envoy-Ratelimited"); got != "true" {
		t.Errorf("the sixth: got x-envoy-ratelimited: %q; want true", got)
	}
	wantProblem(t, a, http.StatusTooManyRequests)
}

// wantProblem checks that the body is a problem detail of RFC 9457.
func wantProblem(t *testing.T, a answer, status int) {
	t.Helper()
	if got := a.header.Values("Content-Type"); len(got) != 1 || got[0] != "application/problem+json" {
		t.Errorf("got content-type: %q; want application/problem+json", got)
	}
	var problem struct {
		Type, Title string
		Status      int
	}
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil || problem.Status != status || problem.Type == "" ||
		problem.Title == "" {
		t.Errorf("got body %s (%v); want the type, title and status %d of RFC 9457", a.body, err, status)
	}
}

// testLimits sends a few more calls than each limit allows.
func testLimits(t *testing.T, envoy *proxy) {
	const post, get = http.MethodPost, http.MethodGet
	for _, c := range []struct {
		name      string
		call      call
		allowed   int
		unlimited bool
	}{
		{name: "an address may open 10 accounts a day", allowed: 10,
			call: call{method: post, path: "/accounts", from: "127.0.0.2"}},
		{name: "another address may, too", allowed: 10,
			call: call{method: post, path: "/accounts", from: "127.0.0.3"}},
		{name: "x-forwarded-for of the client changes nothing", allowed: 0,
			call: call{method: post, path: "/accounts", from: "127.0.0.3",
				header: [][2]string{{"x-forwarded-for", "192.0.2.7"}}}},
		{name: "another spelling of the path changes nothing", allowed: 0,
			call: call{method: post, path: "//x/../%61ccounts/", from: "127.0.0.3"}},
		{name: "GET /accounts has no limit", unlimited: true,
			call: call{method: get, path: "/accounts", from: "127.0.0.3"}},
		{name: "a device may claim 5 rewards a week", allowed: 5, call: claim("one")},
		{name: "another device may, too", allowed: 5, call: claim("another")},
		{name: "a rule in shadow mode does not deny", unlimited: true,
			call: call{method: get, path: "/", from: "127.0.0.5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := c.allowed + 3
			if c.unlimited {
				n, c.allowed = 25, 25 // the rule in shadow mode has a limit of 20
			}
			if allowed, denied := envoy.tally(t, n, c.call); allowed != c.allowed {
				t.Errorf("got %d allowed and %d denied; want %d allowed", allowed, denied, c.allowed)
			}
		})
	}
}

// testPosts sends a burst. Each window of a second allows at most 2 requests. The number of windows depends on the
// duration of the test.
func testPosts(t *testing.T, envoy *proxy) {
	begin := time.Now()
	allowed, denied := envoy.tally(t, 10,
		call{method: http.MethodPost, path: "/posts", header: [][2]string{{"x-user-id", "ann"}}})
	windows := 2 + int(time.Since(begin)/time.Second)
	if allowed < 2 || allowed > 2*windows {
		t.Errorf("got %d allowed and %d denied; want 2 in each of at most %d windows", allowed, denied, windows)
	}
}

// testGRPC checks the same limit for a gRPC client, which receives RESOURCE_EXHAUSTED (8).
func testGRPC(t *testing.T, envoy *proxy) {
	say := claim("grpc")
	say.path, say.grpc = "/rewards/Claim", true
	for i := range 5 {
		if a := envoy.do(t, say); a.status != http.StatusOK || a.grpcStatus != "0" {
			t.Fatalf("call %d: got HTTP %d, grpc-status %q; want 200 and 0", i+1, a.status, a.grpcStatus)
		}
	}
	a := envoy.do(t, say)
	if a.status != http.StatusOK || a.grpcStatus != "8" {
		t.Errorf("call 6: got HTTP %d, grpc-status %q; want 200 and 8, RESOURCE_EXHAUSTED", a.status, a.grpcStatus)
	}
	if a.header.Get("Retry-After") == "" || !strings.HasPrefix(a.header.Get("RateLimit"), `"rewards-per-device";r=0`) {
		t.Errorf("call 6: got %v; want retry-after and ratelimit", a.header)
	}
}

// testHostileValues sends values that a service could fail on. Envoy allows a request if the call to the service
// fails, so the service must count each of these values. No two of them may share a bucket.
func testHostileValues(t *testing.T, envoy *proxy) {
	long := strings.Repeat("x", 55<<10) // Envoy takes 60 KiB of headers
	for _, c := range []struct{ name, value string }{
		{"55 KiB", long + "a"},
		{"55 KiB that differ at the end", long + "b"},
		{"invalid UTF-8", "\xff\xfe\x80"},
		{"other invalid UTF-8", "\xff\xfe\x81"},
		{"an incomplete UTF-8 sequence", "caf\xc3"},
		{"UTF-8", "日本語"},
		{"a wildcard", "*"},
		{"empty", ""},
		{"separators", "a_b|c:d{e}/f"},
		{"a key of envoyproxy/ratelimit", "demo_60"},
		{"format verbs", "%s%n%REQ(x)%"},
		{"quotes", `"'\;--`},
		{"tab", "a\tb"},
		{"number", "-1e309"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if allowed, denied := envoy.tally(t, 7, claim(c.value)); allowed != 5 || denied != 2 {
				t.Errorf("got %d allowed and %d denied; want 5 and 2", allowed, denied)
			}
		})
	}
}

// testNoDevice checks that a client cannot avoid a limit by omitting the device header.
func testNoDevice(t *testing.T, envoy *proxy) {
	for _, path := range []string{"/rewards", "/rewards/", "/rewards/1", "//rewards"} {
		if a := envoy.do(t, call{method: http.MethodPost, path: path}); a.status != http.StatusBadRequest {
			t.Errorf("POST %s without a device: got %d, want 400", path, a.status)
		}
	}
}
