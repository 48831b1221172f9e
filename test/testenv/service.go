package testenv

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// WithService builds extauthz, calls run with the path of the binary, and removes the binary. The flags are those of
// `go build`. WithService returns the exit code for TestMain.
func WithService(run func(binary string) int, flags ...string) int {
	dir, err := os.MkdirTemp("", "extauthz-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := Build(dir, "extauthz", flags...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run(binary)
}

// Build builds a program of cmd into dir and returns the path of the binary. The flags are those of `go build`.
func Build(dir, program string, flags ...string) (binary string, err error) {
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, program)
	args := append([]string{"build", "-C", root, "-o", binary}, flags...)
	if out, err := exec.Command("go", append(args, "./cmd/"+program)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return binary, nil
}

// RunningService is a running extauthz.
type RunningService struct {
	*Program
	GRPCPort, HTTPPort, DebugPort int
}

// Service starts extauthz, the binary of Build, with the given environment variables (NAME=value) only. At the end of
// the test it terminates the service; the test fails unless the exit status is 0.
func Service(t testing.TB, binary string, environment ...string) *RunningService {
	t.Helper()
	return ServiceIn(t, "", binary, environment...)
}

// transportVariable is the setting of the service that a run of tests can set: `make test-grpc-go` does.
const transportVariable = "GRPC_TRANSPORT"

// Transport returns the transport that tests use if they name none.
func Transport() string { return transport }

// transport is read before a test removes the variables of the service.
var transport = cmp.Or(os.Getenv(transportVariable), "native")

// ServiceIn is Service in a working directory.
func ServiceIn(t testing.TB, dir, binary string, environment ...string) *RunningService {
	t.Helper()
	s := &RunningService{GRPCPort: FreePort(t), HTTPPort: FreePort(t), DebugPort: FreePort(t)}
	cmd := exec.Command(binary)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PORT=" + strconv.Itoa(s.HTTPPort),
		"GRPC_PORT=" + strconv.Itoa(s.GRPCPort),
		"DEBUG_PORT=" + strconv.Itoa(s.DebugPort),
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "LOG_LEVEL=INFO",
		"DRAIN_DELAY=0s", // no Envoy has to notice the end of the service
		transportVariable + "=" + Transport(),
	}, environment...)
	if slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, "GRPC_UDS=") }) {
		cmd.Env = append(cmd.Env, "GRPC_PORT=8081") // another one would be a mistake beside a socket
	}
	s.Program = Start(t, cmd, func() error {
		_, err := get("http://" + Loopback(s.HTTPPort) + "/healthcheck")
		return err
	})
	t.Cleanup(func() {
		if err := s.Terminate(); err != nil {
			t.Errorf("the service: %v", err)
		}
	})
	return s
}

// Metric returns the value of a metric, whose name includes labels, of the service whose debug port has this base URL.
func Metric(t testing.TB, debugURL, name string) float64 {
	t.Helper()
	body, err := get(debugURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, ok := restOfLine(body, name+" ")
	if !ok {
		t.Fatalf("no metric %s", name)
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("metric %s: %v", name, err)
	}
	return value
}
