package service

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/extauthz/extauthz/internal/testenv"
)

// program is the path of extauthz: keys are made with it, as an operator does.
var program string

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(testenv.WithService(func(binary string) int { program = binary; return m.Run() }))
}

var (
	keyPattern  = regexp.MustCompile(`ea_([0-9A-Za-z]{8})_[0-9A-Za-z]{38}`)
	hashPattern = regexp.MustCompile(`hmac-sha256:[0-9a-f]{8}:[0-9A-Za-z_-]{43}`)
)

// Exit codes of the program.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// runKeys runs `extauthz keys` in an environment.
func runKeys(t *testing.T, env Environment, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runProgram(t, env, stdin, append([]string{"keys"}, args...)...)
}

// runProgram runs extauthz in an environment.
func runProgram(t *testing.T, env Environment, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runBinary(t, program, env, stdin, args...)
}

// runBinary is runProgram for another name of the program.
func runBinary(t *testing.T, name string, env Environment, stdin string, args ...string) (code int, stdout,
	stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = []string{} // not that of this process
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// keys runs a subcommand that must succeed, and returns its stdout.
func keys(t *testing.T, env Environment, args ...string) string {
	t.Helper()
	code, stdout, stderr := runKeys(t, env, "", args...)
	if code != exitOK {
		t.Errorf("keys %v: exit code %d\n%s", args, code, stderr)
	}
	return strings.TrimSpace(stdout)
}
