package e2e

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestVerify runs testdata/verify.sh, which checks what docker-compose.yml demonstrates. It uses the same rules, keys
// and Envoy configuration, but no containers. scripts/test-compose runs the script with containers.
func TestVerify(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		envoy, walk := composed(t)
		envoy.checkExamples(t, block(t, "docs/tutorial.md", "console", "demo-alice"), nil)
		verify(t, walk)
	})

	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		redis := testenv.Redis(t)
		_, walk := composed(t, "REDIS_URL=redis://"+redis.Addr, "REDIS_TIMEOUT="+longTimeout)
		// The test stops and starts Redis when the script calls these commands.
		commands, done := make(chan func()), make(chan struct{})
		command := func(do func()) string {
			s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				select {
				case commands <- do:
					<-done
				case <-t.Context().Done(): // the test has failed
				}
			}))
			t.Cleanup(s.Close)
			return "curl --silent --fail " + s.URL
		}
		walk.Env = append(walk.Env, "STOP_REDIS="+command(redis.Kill), "START_REDIS="+command(redis.Restart))
		defer close(done) // also if Redis does not start again, which ends the test here
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			verify(t, walk)
		}()
		for {
			select {
			case do := <-commands:
				do()
				done <- struct{}{}
			case <-ended:
				return
			}
		}
	})
}

// TestVerifyFails checks that the script fails at a wrong answer and names it.
func TestVerifyFails(t *testing.T) {
	t.Parallel()
	envoy, walk := composed(t)
	for _, c := range []struct{ name, variable, want string }{
		{"another answer", "PROXY=http://" + envoy.Admin, "the status: want 401, got 404"},
		{"no admin interface", "ADMIN=http://" + testenv.Loopback(testenv.FreePort(t)), "want an answer, got nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(walk.Path)
			cmd.Env = append(slices.Clone(walk.Env), c.variable) // the last one of a name counts
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 ||
				!strings.Contains(string(out), c.want) {
				t.Errorf("%s: got %v, want exit status 1 and %q in the output:\n%s", c.variable, err, c.want, out)
			}
		})
	}
}

func verify(t *testing.T, walk *exec.Cmd) {
	t.Helper()
	out, err := walk.CombinedOutput()
	t.Logf("%s:\n%s", walk, out)
	if err != nil {
		t.Error(err)
	}
}

// composed starts the services of docker-compose.yml for the length of the test. It returns Envoy and the command
// that runs testdata/verify.sh. The service gets the environment in addition to its rules and keys.
func composed(t *testing.T, environment ...string) (*proxy, *exec.Cmd) {
	t.Helper()
	root, rules := rulesDirectory(t, testenv.RepoFile(t, "deploy/compose/rules/shop.yaml"))
	keys := filepath.Join(testenv.RepoRoot(t), "deploy", "compose", "keys")
	service := startService(t, append([]string{
		"RUNTIME_ROOT=" + root, "API_KEYS_FILE=" + filepath.Join(keys, "keys.jsonl"),
		"API_KEY_SECRET_FILE=" + filepath.Join(keys, "secret"),
	}, environment...)...)

	upstream := testenv.FreePort(t)
	echo := exec.Command(binary, "echo")
	echo.Env = []string{"ECHO_ADDRESS=" + testenv.Loopback(upstream)}
	testenv.Start(t, echo, func() error {
		return exec.Command(binary, "health", "--http", "http://"+testenv.Loopback(upstream)+"/healthz").Run()
	})

	// Names of containers, and 0.0.0.0, become 127.0.0.1.
	here := func(before string) edit {
		return instead("address: "+before+", port_value", "address: 127.0.0.1, port_value")
	}
	envoy := startEnvoyWith(t, "deploy/compose/envoy/envoy.yaml", testenv.Ports{8000: upstream, 8081: service.grpcPort},
		here("upstream"), here("extauthz"), instead("0.0.0.0, port_value: 10000", "127.0.0.1, port_value: 10000"))

	walk := exec.Command(filepath.Join(testenv.RepoRoot(t), "testdata", "verify.sh"))
	walk.Env = append(os.Environ(), "PROXY=http://"+envoy.addr, "ADMIN=http://"+envoy.Admin, "METRICS="+service.debug,
		"RULES="+rules)
	return envoy, walk
}
