package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestReload changes the rule file while the service runs. TestWatcher of pkg/rules/file checks how soon a change is
// noticed.
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
	// The counts remain: 3 of now 4 are used.
	if allowed, denied := envoy.tally(t, 3, claim("one")); allowed != 1 {
		t.Errorf("afterwards: got %d allowed and %d denied; want 1 and 2", allowed, denied)
	}

	// A file with a mistake is only logged, and the next file takes effect again.
	const mistake = "request_per_unit"
	replace(t, file, strings.Replace(rules(9), "requests_per_unit", mistake, 1))
	testenv.Eventually(t, func() error {
		if !strings.Contains(service.Output(), mistake) {
			return fmt.Errorf("the log of the service:\n%s", service.Output())
		}
		return nil
	}, "a log line about the mistake")
	awaitPolicy(t, envoy, `"per-device";q=4;w=3600`)
	replace(t, file, rules(6))
	awaitPolicy(t, envoy, `"per-device";q=6;w=3600`)
	envoy.checkNoFailures(t)
}

// awaitPolicy repeats a request until the response has this ratelimit-policy.
func awaitPolicy(t *testing.T, envoy *proxy, want string) {
	t.Helper()
	n := 0
	testenv.Eventually(t, func() error {
		n++
		a := envoy.do(t, claim(fmt.Sprint(want, n)))
		if got := a.header.Get("RateLimit-Policy"); got != want {
			return fmt.Errorf("got ratelimit-policy: %s", got)
		}
		return nil
	}, "ratelimit-policy: "+want)
}

// replace replaces a file in one step, as editors and configuration management do.
func replace(t *testing.T, file, content string) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	// The file's time must differ from that of the rename, as it does except in scripts.
	earlier := time.Now().Add(-time.Second)
	if err := os.Chtimes(next, earlier, earlier); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}
