package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// doctorScene has an Envoy that gets requests, and no service.
func doctorScene(t *testing.T, dir string) scene {
	t.Helper()
	envoy := startEnvoy(t, testenv.FreePort(t))
	rules := filepath.Join(dir, "rules")
	if err := os.Mkdir(rules, 0o755); err != nil {
		t.Fatal(err)
	}
	sample := testenv.RepoFile(t, "internal/service/sample/sample.yaml")
	if err := os.WriteFile(filepath.Join(rules, "sample.yaml"), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	keepAsking(t, envoy)
	return scene{
		environment: []string{"REDIS_TIMEOUT=30s"}, // long enough for a slow test machine
		addresses:   []string{"localhost:9901", envoy.Admin, "localhost:6379", testenv.Redis(t).Addr},
		plain:       plain,
	}
}

// TestDoctorOfRunningService finds nothing while the service answers, and in another format the same.
func TestDoctorOfRunningService(t *testing.T) {
	t.Parallel()
	service := startService(t)
	envoy := startEnvoy(t, service.grpcPort)
	testenv.Eventually(t, func() error {
		if envoy.Stat("cluster.extauthz.membership_healthy") != 1 {
			return errors.New("the service is not healthy yet")
		}
		return nil
	}, "Envoy to see the service")
	keepAsking(t, envoy)
	rules := filepath.Join(testenv.RepoRoot(t), "internal", "service", "sample")
	doctor := func(args ...string) (out string, code int) {
		cmd := exec.Command(binary, append([]string{"doctor", "--envoy", "http://ann:swordfish@" + envoy.Admin}, args...)...)
		text, _ := cmd.CombinedOutput()
		if strings.Contains(string(text), "swordfish") {
			t.Errorf("a password in\n%s", text)
		}
		return string(text), cmd.ProcessState.ExitCode()
	}
	out, code := doctor(rules)
	for _, want := range []string{"ext_authz: within 1s, 0 of ", "ratelimit: within 1s, 0 of ", "0 over HTTP/1.1"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want 0 and %q in\n%s", code, want, out)
		}
	}
	if out, code = doctor("-o", "sarif", rules); code != 0 || !strings.Contains(out, `"results": []`) {
		t.Errorf("exit code %d, want 0 and no results in\n%s", code, out)
	}
	const absent = "redis://ann:swordfish@127.0.0.1:1"
	out, code = doctor("-o", "json", "--redis", absent, rules)
	if code != 2 || !strings.Contains(out, `"id": "redis-unreachable"`) {
		t.Errorf("without Redis: exit code %d, want 2 and a finding in\n%s", code, out)
	}
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error { // a request must end within the second that it looks at
		if out, code = doctor("-o", "sarif", rules); code != 1 || !strings.Contains(out, `"ruleId": "failing-open"`) {
			return fmt.Errorf("exit code %d, want 1 and failing-open in\n%s", code, out)
		}
		return nil
	}, "failing-open without the service")
}

// keepAsking sends requests to both filters until the test ends.
func keepAsking(t *testing.T, envoy *proxy) {
	t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range []call{get("/"), {method: http.MethodPost, path: "/accounts"}} {
				req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+envoy.addr+c.path, nil)
				if err != nil {
					panic(err) // the addresses are right
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		all.Wait()
	})
}

var (
	numbers  = regexp.MustCompile(`-?(\d[\d.,]*(µs|ms|s|m|h)?)+( (µs|ms|s|m)\b)?`)
	counters = regexp.MustCompile(`(within N: ).*`)
	versions = regexp.MustCompile(`(?m)^(ok: redis:\S+ (Redis|Valkey) N|redis:\S+ warning: (Redis|Valkey) N .*\n .*\n)$\n`)
)

// plain returns what doctor or bench print without numbers, durations and the counters that grew. It leaves out the
// version of Redis, which is that of the machine.
func plain(text string) string {
	text = numbers.ReplaceAllString(strings.TrimRight(text, "\n"), "N")
	return versions.ReplaceAllString(counters.ReplaceAllString(text, "${1}..."), "")
}
