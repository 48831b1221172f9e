package service

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// program is the path of extauthz: keys are made with it, as an operator does.
var program string

// defaults are the settings of an environment without variables of the service.
var defaults settings.Settings

// TestMain removes the variables of the service, so that tests begin with the defaults.
func TestMain(m *testing.M) {
	logging.Disable()
	for _, name := range settings.Names() {
		_ = os.Unsetenv(name) // the name is valid
	}
	if s, err := settings.Read(); err == nil { // always: nothing is set
		defaults = *s
	}
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

// configured returns settings that differ from the defaults: free ports on loopback, a log with INFO, no DRAIN_DELAY,
// and what the changes set.
func configured(changes ...func(*settings.Settings)) *settings.Settings {
	s := defaults
	l := &s.Listeners
	l.Host, l.GRPCHost, l.Port, l.GRPCPort, l.DebugPort = "127.0.0.1", "127.0.0.1", 0, 0, 0
	l.Transport = testenv.Transport()
	s.Telemetry.LogLevel, s.Process.DrainDelay = settings.LogLevel(slog.LevelInfo), 0
	for _, change := range changes {
		if change != nil {
			change(&s)
		}
	}
	return &s
}

// variables returns the environment of a process with some settings: the variables of those that differ from the
// defaults.
func variables(s *settings.Settings) (environ []string) {
	environ = []string{} // not that of this process
	var add func(prefix string, set, usual reflect.Value)
	add = func(prefix string, set, usual reflect.Value) {
		for f, value := range set.Fields() {
			name := f.Tag.Get("envconfig")
			switch was := usual.FieldByIndex(f.Index); {
			case name == "" && f.Type.Kind() == reflect.Struct:
				add(f.Tag.Get("prefix"), value, was)
			case name != "" && !reflect.DeepEqual(value.Interface(), was.Interface()):
				text := fmt.Sprint(value.Interface())
				if level, ok := value.Interface().(settings.LogLevel); ok {
					text = slog.Level(level).String()
				}
				environ = append(environ, prefix+name+"="+text)
			}
		}
	}
	if s != nil {
		add("", reflect.ValueOf(*s), reflect.ValueOf(defaults))
	}
	return environ
}

// portOf returns the port of a text.
func portOf(t *testing.T, port string) uint16 {
	t.Helper()
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n)
}

// runKeys runs `extauthz keys` with settings.
func runKeys(t *testing.T, s *settings.Settings, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runProgram(t, s, stdin, append([]string{"keys"}, args...)...)
}

// runProgram runs extauthz with settings.
func runProgram(t *testing.T, s *settings.Settings, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runBinary(t, program, s, stdin, args...)
}

// runBinary is runProgram for another name of the program.
func runBinary(t *testing.T, name string, s *settings.Settings, stdin string, args ...string) (code int, stdout,
	stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = variables(s)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// keys runs a subcommand that must succeed, and returns its stdout.
func keys(t *testing.T, s *settings.Settings, args ...string) string {
	t.Helper()
	code, stdout, stderr := runKeys(t, s, "", args...)
	if code != exitOK {
		t.Errorf("keys %v: exit code %d\n%s", args, code, stderr)
	}
	return strings.TrimSpace(stdout)
}
