package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestTour makes the requests of the README, with the default configuration of the service and of Envoy.
func TestTour(t *testing.T) {
	t.Parallel()
	service := startService(t)
	envoy := startEnvoy(t, service.grpcPort)
	t.Run("the README", func(t *testing.T) {
		envoy.checkExamples(t, block(t, "README.md", "console", `"x-api-key: demo"`), nil)
	})
	t.Run("the banner", func(t *testing.T) { testBanner(t, service) })

	t.Run("paths without a credential", func(t *testing.T) {
		for _, c := range []call{get("/healthz"), {method: http.MethodPost, path: "/accounts"}} {
			if a := envoy.do(t, c); a.status != http.StatusOK {
				t.Errorf("%s %s: got %d %s, want 200", c.method, c.path, a.status, a.body)
			}
		}
	})
	t.Run("paths that require a credential", func(t *testing.T) {
		for _, c := range []call{
			{method: http.MethodPost, path: "/posts"}, claim("one"), get("/accounts"), get("/healthz/x"),
			{method: http.MethodPost, path: "/accounts/7/close"}, {method: http.MethodPost, path: "/accountsx"},
		} {
			if a := envoy.do(t, c); a.status != http.StatusUnauthorized {
				t.Errorf("%s %s: got %d, want 401", c.method, c.path, a.status)
			}
		}
	})
	envoy.checkNoFailures(t)
}

// TestTourOfRoutes posts with the key of the sample. The routes limit by its owner and plan.
func TestTourOfRoutes(t *testing.T) {
	t.Parallel()
	envoy := startEnvoy(t, startService(t).grpcPort)
	post := call{method: http.MethodPost, path: "/posts", header: [][2]string{{"x-api-key", "demo"}}}
	a := envoy.do(t, post)
	if a.status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", a.status, a.body)
	}
	wantHeaders(t, "the application", a.saw(), http.Header{
		"X-Auth-Owner": {"demo"}, "X-Auth-Plan": {"free"}, "X-Auth-Method": {"api_key"}, "X-Auth-Key-Id": {"demo"},
		"X-Api-Key": nil,
	})
	wantList(t, a, "Ratelimit-Policy", `"per-owner";q=5;w=60`, `"posts-per-user";q=2;w=1`,
		`"free-posts-per-user";q=20;w=86400`)
	if a := envoy.invoke(t, "/echo.Echo/Say", "x-api-key", "demo"); a.Code() != 0 {
		t.Errorf("a gRPC client: got %v, want OK", a)
	}
	envoy.checkNoFailures(t)
}

// TestTourOfPaths posts to other spellings of the path. An application treats them as the same path, and so must the
// routes and their limits.
func TestTourOfPaths(t *testing.T) {
	t.Parallel()
	envoy := startEnvoy(t, startService(t).grpcPort)
	post := call{method: http.MethodPost, header: [][2]string{{"x-api-key", "demo"}}}
	for _, post.path = range []string{"/x/../posts", "//posts", "/%70osts", "/./posts//"} {
		if a := envoy.do(t, post); !strings.Contains(a.header.Get("Ratelimit-Policy"), `"posts-per-user"`) {
			t.Errorf("POST %s: got %d, limited by %q, want posts-per-user among them", post.path, a.status,
				a.header.Get("Ratelimit-Policy"))
		}
	}
	for path, want := range map[string]string{"/x%2fposts": "/x/posts", "/posts%5Cone": "/posts/one"} {
		post.path = path
		if a := envoy.do(t, post); a.status != http.StatusTemporaryRedirect || a.header.Get("Location") != want {
			t.Errorf("POST %s: got %d to %q, want %d to %s", path, a.status, a.header.Get("Location"),
				http.StatusTemporaryRedirect, want)
		}
	}
	envoy.checkNoFailures(t)
}

// testBanner makes the request that the service logs when it starts without a configuration. The sixth one gets 429.
func testBanner(t *testing.T, s *service) {
	var url, body string
	testenv.Eventually(t, func() error {
		m := regexp.MustCompile(`curl -i (http://\S+/json) -d '([^']+)'`).FindStringSubmatch(s.Output())
		if m == nil {
			return fmt.Errorf("the log of the service:\n%s", s.Output())
		}
		url, body = m[1], m[2]
		return nil
	}, "a curl line for /json")
	for i := 1; i <= 6; i++ {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		want := http.StatusOK
		if i == 6 {
			want = http.StatusTooManyRequests
		}
		if err != nil || resp.StatusCode != want {
			t.Errorf("request %d: got %s %s (%v), want %d", i, resp.Status, answer, err, want)
		}
	}
}
