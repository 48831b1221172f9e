package testenv

import (
	"encoding/json"
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

// EnvoyProxy is a real Envoy of one test.
type EnvoyProxy struct {
	// Admin is the address of its admin interface.
	Admin string

	t    testing.TB
	proc *process
}

// Ports says which port of a configuration is which in a test: every `port_value: <key>` becomes `port_value: <value>`, and
// so does `"portValue": <key>`, as JSON has it. A listener that is given port 0 takes a free one, which Listener tells.
type Ports map[int]int

// Envoy starts an Envoy with this bootstrap configuration (YAML) that lives as long as the test. The admin interface moves
// to a free port by itself.
func Envoy(t testing.TB, config string, ports Ports) *EnvoyProxy {
	t.Helper()
	dir := t.TempDir()
	adminPath := filepath.Join(dir, "admin")
	cmd := envoyCommand(t, dir, ports.substitute(t, config),
		// Merged over the file: where its own admin interface would listen, that of another test may.
		"--config-yaml", "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}",
		"--admin-address-path", adminPath,
		"--concurrency", "1",
		"--disable-hot-restart", // no shared memory, hence nothing to share with the Envoys of other tests
	)
	e := &EnvoyProxy{t: t, proc: startProcess(t, cmd)}
	e.proc.awaitReady(t, func() error {
		admin, err := os.ReadFile(adminPath)
		if err != nil {
			return err
		}
		e.Admin = string(admin)
		_, err = e.admin("/ready")
		return err
	})
	return e
}

// ValidateEnvoy lets Envoy judge a bootstrap configuration without running it (--mode validate); the error holds its words.
// A field that Envoy does not know is an error to it, one that is deprecated is an error to us.
func ValidateEnvoy(t testing.TB, config string) error {
	t.Helper()
	out, err := envoyCommand(t, t.TempDir(), config, "--mode", "validate").CombinedOutput()
	if err == nil && strings.Contains(strings.ToLower(string(out)), "deprecated") {
		err = errors.New("it uses what is deprecated")
	}
	if err != nil {
		return fmt.Errorf("envoy --mode validate: %w\n%s", err, out)
	}
	return nil
}

// envoyCommand is the command that runs Envoy on a configuration, which it writes into dir.
func envoyCommand(t testing.TB, dir, config string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--config-path", path, "--log-level", "warning"}, args...)
	return exec.Command(Binary(t, "envoy", "ENVOY_BIN"), args...)
}

// substitute changes the ports of a configuration, and fails the test for one that is not in it.
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
			t.Fatalf("no `port_value: %d` in Envoy's configuration:\n%s", from, config)
		}
	}
	return config
}

var portValue = regexp.MustCompile(`((?:port_value|"portValue"):\s*)(\d+)`)

// Listener returns the address of the listener with this name, as "127.0.0.1:<port>".
func (e *EnvoyProxy) Listener(name string) string {
	e.t.Helper()
	var listeners struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	e.adminJSON("/listeners?format=json", &listeners)
	for _, l := range listeners.Statuses {
		if l.Name == name {
			return Loopback(l.Address.Socket.Port)
		}
	}
	e.t.Fatalf("Envoy has no listener %q: %+v", name, listeners)
	return ""
}

// Stat returns the value of a counter or gauge; one that Envoy has not touched yet is 0.
func (e *EnvoyProxy) Stat(name string) int {
	e.t.Helper()
	var stats struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int    `json:"value"`
		} `json:"stats"`
	}
	e.adminJSON("/stats?format=json&filter="+url.QueryEscape("^"+regexp.QuoteMeta(name)+"$"), &stats)
	for _, s := range stats.Stats {
		if s.Name == name {
			return s.Value
		}
	}
	return 0
}

// adminJSON reads what the admin interface answers as JSON.
func (e *EnvoyProxy) adminJSON(path string, into any) {
	e.t.Helper()
	body, err := e.admin(path)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		e.t.Fatalf("Envoy's admin interface: GET %s: %v", path, err)
	}
}

func (e *EnvoyProxy) admin(path string) ([]byte, error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + e.Admin + path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status + ": " + strings.TrimSpace(string(body)))
	}
	return body, nil
}
