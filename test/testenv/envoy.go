package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// EnvoyProxy is a running Envoy of one test.
type EnvoyProxy struct {
	// Admin is the address of the admin interface.
	Admin string

	t testing.TB
}

// Ports maps the ports of a configuration, after `port_value:` or in JSON after `"portValue":`, to those of a test. A
// listener with port 0 takes a free port, which Listener returns.
type Ports map[int]int

// Envoy starts an Envoy with this bootstrap configuration (YAML), and an admin interface. It ends with the test.
func Envoy(t testing.TB, config string, ports Ports) *EnvoyProxy {
	t.Helper()
	dir := t.TempDir()
	adminPath := filepath.Join(dir, "admin")
	cmd := envoyCommand(t, dir, ports.substitute(t, config),
		// Overrides the file: another test may use the port that the file gives to the admin interface.
		"--config-yaml", "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}",
		"--admin-address-path", adminPath,
		"--concurrency", "1",
		"--disable-hot-restart", // no memory that Envoys of other tests would share
	)
	e := &EnvoyProxy{t: t}
	Start(t, cmd, func() error {
		admin, err := os.ReadFile(adminPath)
		if err != nil {
			return err
		}
		e.Admin = string(admin)
		_, err = get("http://" + e.Admin + "/ready")
		return err
	})
	return e
}

// ValidateEnvoy lets Envoy check a bootstrap configuration without running it (--mode validate); the error holds
// Envoy's output. Unknown fields and deprecated fields are errors.
func ValidateEnvoy(t testing.TB, config string) error {
	t.Helper()
	out, err := envoyCommand(t, t.TempDir(), config, "--mode", "validate").CombinedOutput()
	if err == nil && strings.Contains(strings.ToLower(string(out)), "deprecated") {
		err = errors.New("the configuration has deprecated fields")
	}
	if err != nil {
		return fmt.Errorf("envoy --mode validate: %w\n%s", err, out)
	}
	return nil
}

// envoyCommand writes a configuration into dir and returns the command that runs Envoy with it.
func envoyCommand(t testing.TB, dir, config string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--config-path", path, "--log-level", "warning"}, args...)
	return exec.Command(Binary(t, "envoy", "ENVOY_BIN"), args...)
}

// substitute replaces the ports of a configuration. The test fails if the configuration lacks one of them.
func (p Ports) substitute(t testing.TB, config string) string {
	t.Helper()
	seen := Ports{}
	config = portValue.ReplaceAllStringFunc(config, func(s string) string {
		groups := portValue.FindStringSubmatch(s)
		from, err := strconv.Atoi(groups[2])
		to, ok := p[from]
		if err != nil || !ok {
			return s
		}
		seen[from] = to
		return groups[1] + strconv.Itoa(to)
	})
	for from := range p {
		if _, ok := seen[from]; !ok {
			t.Fatalf("Envoy's configuration has no `port_value: %d`:\n%s", from, config)
		}
	}
	return config
}

var portValue = regexp.MustCompile(`((?:port_value|"portValue"):\s*)(\d+)`)

// Listener returns the address of the listener with this name, as "127.0.0.1:<port>".
func (e *EnvoyProxy) Listener(name string) string {
	e.t.Helper()
	address, ok := e.admin("/listeners", name+"::")
	if !ok {
		e.t.Fatalf("Envoy has no listener %q", name)
	}
	return Loopback(Port(e.t, address))
}

// Stat returns the value of a counter or gauge, and 0 for one that Envoy does not list yet.
func (e *EnvoyProxy) Stat(name string) int {
	e.t.Helper()
	text, ok := e.admin("/stats?filter="+url.QueryEscape("^"+regexp.QuoteMeta(name)+"$"), name+": ")
	if !ok {
		return 0
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		e.t.Fatalf("Envoy's statistic %s: %v", name, err)
	}
	return value
}

// admin returns the rest of the line of the admin interface that begins with a text.
func (e *EnvoyProxy) admin(path, begin string) (rest string, ok bool) {
	e.t.Helper()
	body, err := get("http://" + e.Admin + path)
	if err != nil {
		e.t.Fatalf("Envoy's admin interface: %v", err)
	}
	return restOfLine(body, begin)
}

// restOfLine returns the rest of the first line of a text that begins with another text.
func restOfLine(text []byte, begin string) (rest string, ok bool) {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), begin); ok {
			return rest, true
		}
	}
	return "", false
}

// get returns the body of a response with the status 200.
func get(url string) ([]byte, error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, bytes.TrimSpace(body))
	}
	return body, err
}
