package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestReload changes the rule file under the running service. How soon a change is noticed is TestWatcher's affair (pkg/rules/file).
func TestReload(t *testing.T) {
	t.Parallel()
	rules := func(requests int) string {
		return fmt.Sprintf(`
domain: sample
descriptors:
  - key: action
    value: claim_reward
    descriptors:
      - key: device
        rate_limit: { name: per-device, unit: hour, requests_per_unit: %d }
`, requests)
	}
	root, file := rulesDirectory(t, rules(5))
	service := startService(t, "RUNTIME_ROOT="+root)
	envoy := startEnvoy(t, service.grpcPort, without(extAuthz))
	if allowed, _ := envoy.tally(t, 3, claim("one")); allowed != 3 {
		t.Fatalf("before: got %d of 3 allowed, want 3", allowed)
	}

	replace(t, file, rules(4))
	awaitPolicy(t, envoy, `"per-device";q=4;w=3600`)
	// What was counted stays counted: 3 of now 4 are gone.
	if allowed, denied := envoy.tally(t, 3, claim("one")); allowed != 1 {
		t.Errorf("afterwards: got %d allowed and %d denied; want 1 and 2", allowed, denied)
	}

	// A file with a mistake changes nothing but the log, and does not keep the next one from being read.
	const mistake = "request_per_unit"
	replace(t, file, strings.Replace(rules(9), "requests_per_unit", mistake, 1))
	testenv.Eventually(t, func() error {
		if !strings.Contains(service.Output(), mistake) {
			return fmt.Errorf("the service has said:\n%s", service.Output())
		}
		return nil
	}, "a word about the mistake")
	awaitPolicy(t, envoy, `"per-device";q=4;w=3600`)
	replace(t, file, rules(6))
	awaitPolicy(t, envoy, `"per-device";q=6;w=3600`)
	envoy.neverFailed(t)
}

// awaitPolicy waits until a client is told of this policy.
func awaitPolicy(t *testing.T, envoy *proxy, want string) {
	t.Helper()
	n := 0
	testenv.Eventually(t, func() error {
		n++
		a := envoy.do(t, claim(fmt.Sprint(want, n)))
		if got := a.header.Get("RateLimit-Policy"); got != want {
			return fmt.Errorf("a client is told ratelimit-policy: %s", got)
		}
		return nil
	}, "ratelimit-policy: "+want)
}

// replace puts a file in the place of another in one step, as editors and configuration management do.
func replace(t *testing.T, file, content string) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	// In another tick of the file system's clock than the rename, as with everything but a script.
	earlier := time.Now().Add(-time.Second)
	if err := os.Chtimes(next, earlier, earlier); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}
