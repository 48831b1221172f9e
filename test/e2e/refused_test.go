package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestRefused sends invalid credentials. From the sixth refusal of an address on, the answer is 429 for every kind of
// invalid credential. A valid credential is still allowed.
func TestRefused(t *testing.T) {
	t.Parallel()
	issuer := newIssuer(t)
	rules := instead("\ndescriptors:\n", `
  refused:
    - actions: [{ remote_address: { key: refused_address } }]
descriptors:
  - key: refused_address
    rate_limit: { name: refused, unit: day, requests_per_unit: 5, algorithm: token_bucket }
`)(t, policy(t, issuer))
	root, _ := rulesDirectory(t, rules)
	service := startService(t, "RUNTIME_ROOT="+root, serverSecret)
	envoy := startEnvoy(t, service.grpcPort)
	const guesser, neighbor = "127.0.0.21", "127.0.0.22"
	from := func(address, path string, header ...[2]string) call {
		c := get(path, header...)
		c.from = address
		return c
	}
	wrong := [2]string{"authorization", "Bearer guess"}
	for n, c := range []struct {
		name   string
		call   call
		status int
	}{
		{"a guess", from(guesser, "/", wrong), http.StatusUnauthorized},
		{"another kind of guess", from(guesser, "/", [2]string{"x-api-key", "guess"}), http.StatusForbidden},
		{"no credential", from(guesser, "/"), http.StatusUnauthorized},
		{"an open path", from(guesser, "/public/logo.png", wrong), http.StatusOK},
		{"a denied path", from(guesser, "/internal/x", wrong), http.StatusForbidden},
		{"a missing scope", call{method: http.MethodDelete, path: "/users/7", from: guesser,
			header: [][2]string{issuer.bearer(t, nil)}}, http.StatusForbidden},
		{"the fourth refusal", from(guesser, "/", wrong), http.StatusUnauthorized},
		{"the fifth", from(guesser, "/", wrong), http.StatusUnauthorized},
		{"the sixth", from(guesser, "/", wrong), http.StatusTooManyRequests},
		{"now without a credential", from(guesser, "/"), http.StatusTooManyRequests},
		{"a token of an unknown issuer", from(guesser, "/", newIssuer(t).bearer(t, nil)), http.StatusTooManyRequests},
		{"a valid token", from(guesser, "/", issuer.bearer(t, nil)), http.StatusOK},
		{"the open path", from(guesser, "/public/logo.png", wrong), http.StatusOK},
		{"another address", from(neighbor, "/", wrong), http.StatusUnauthorized},
	} {
		a := envoy.do(t, c.call)
		if a.status != c.status {
			t.Fatalf("%d, %s: got %d %s, want %d", n, c.name, a.status, a.body, c.status)
		}
		if (a.saw() != nil) != (c.status == http.StatusOK) {
			t.Errorf("%d, %s: got %d, and the application received %v", n, c.name, a.status, a.saw())
		}
		if limited := c.status == http.StatusTooManyRequests; limited != (a.header.Get("Retry-After") != "") {
			t.Errorf("%d, %s: got %d with Retry-After %q", n, c.name, a.status, a.header.Get("Retry-After"))
		} else if limited {
			wantProblem(t, a, c.status)
			wantHeaders(t, c.name, a.header, http.Header{"Www-Authenticate": nil, "Ratelimit-Policy": {`"refused";q=5;w=86400`}})
		}
	}
	for series, want := range map[string]int{
		`extauthz_authz_failures_total{answer="refused",reason="invalid"}`:           5,
		`extauthz_authz_failures_total{answer="refused",reason="absent"}`:            1,
		`extauthz_authz_failures_total{answer="limited",reason="invalid"}`:           2,
		`extauthz_authz_failures_total{answer="limited",reason="absent"}`:            1,
		`extauthz_authz_failures_total{answer="passed",reason="invalid"}`:            2,
		`extauthz_authz_decisions_total{domain="sample",reason="refused_too_often"}`: 3,
	} {
		if got := service.metric(t, series); got != want {
			t.Errorf("%s: got %d, want %d", series, got, want)
		}
	}
}

// TestRefusedGRPC checks the same for gRPC clients: the status is PERMISSION_DENIED, then RESOURCE_EXHAUSTED.
func TestRefusedGRPC(t *testing.T) {
	t.Parallel()
	rules := instead("requests_per_unit: 30", "requests_per_unit: 1")(t,
		testenv.RepoFile(t, "internal/service/sample/sample.yaml"))
	root, _ := rulesDirectory(t, rules)
	envoy := startEnvoy(t, startService(t, "RUNTIME_ROOT="+root, serverSecret).grpcPort)
	for _, want := range []int{7, 8} { // PERMISSION_DENIED, RESOURCE_EXHAUSTED
		if got := envoy.invoke(t, "/echo.Echo/Say", "x-api-key", "guess"); int(got.Code()) != want {
			t.Errorf("got %v, want %d", got, want)
		}
	}
}

// TestRefusedSample sends unknown keys with the sample configuration of Envoy and the sample rules.
func TestRefusedSample(t *testing.T) {
	t.Parallel()
	envoy := startEnvoy(t, startService(t).grpcPort)
	// The limit is 30 at once and one more every 2 seconds, so a slow machine reaches it a little later.
	for n := range 200 {
		a := envoy.do(t, get("/", [2]string{"x-api-key", fmt.Sprint("guess-", n)}))
		switch {
		case a.status == http.StatusForbidden:
			continue
		case a.status != http.StatusTooManyRequests || n < 30 || a.header.Get("Retry-After") == "":
			t.Fatalf("guess %d: got %d %v, want 403 for 30 of them, then 429 with Retry-After", n+1, a.status, a.header)
		}
		if a := envoy.do(t, get("/", demo)); a.status != http.StatusOK {
			t.Errorf("the key of the sample from the same address: got %d %s, want 200", a.status, a.body)
		}
		return
	}
	t.Error("200 guesses: none got 429")
}
