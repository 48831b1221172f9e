// Package e2e runs the service as its users do: the binary with its environment variables, a real Envoy with the sample
// configuration in front of it, Redis behind it, and clients that see nothing but HTTP and gRPC.
package e2e

import (
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// binary is the path of the service, built once for all tests: TestMain can hand it over in no other way.
var binary string

func TestMain(m *testing.M) {
	// Most of the time the tests wait: for a reload, for a queue, for a program to start. The command line has the last word.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err) // there is such a flag
	}
	// With the race detector, also when the tests run without it: a race ends the service with 66, and Terminate tells.
	os.Exit(testenv.WithService(func(path string) int {
		binary = path
		return m.Run()
	}, "-race"))
}

// service is the running service.
type service struct {
	*testenv.Program
	grpcPort    int
	http, debug string // the bases of its URLs
}

// startService starts the service with these environment variables (NAME=value), and no others, and ends it with the test.
func startService(t *testing.T, environment ...string) *service {
	t.Helper()
	return startServiceIn(t, "", environment...)
}

// startServiceIn is startService in a working directory.
func startServiceIn(t *testing.T, dir string, environment ...string) *service {
	t.Helper()
	s := testenv.ServiceIn(t, dir, binary, environment...)
	return &service{
		Program:  s.Program,
		grpcPort: s.GRPCPort,
		http:     "http://" + testenv.Loopback(s.HTTPPort),
		debug:    "http://" + testenv.Loopback(s.DebugPort),
	}
}

// metric reads a metric without labels.
func (s *service) metric(t *testing.T, name string) int {
	t.Helper()
	resp, err := http.Get(s.debug + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return n
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// rulesDirectory makes a RUNTIME_ROOT that holds one rule file, and returns it and the path of the file.
func rulesDirectory(t *testing.T, rules string) (root, file string) {
	t.Helper()
	root = t.TempDir()
	file = filepath.Join(root, "config", "rules.yaml")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return root, file
}

// startEnvoy starts an Envoy with the sample configuration, edited for the test, that asks a service at this port.
func startEnvoy(t *testing.T, grpcPort int, edits ...edit) *proxy {
	t.Helper()
	return startEnvoyWith(t, "envoy/envoy.yaml", testenv.Ports{8000: testenv.Port(t, application(t)), 8081: grpcPort}, edits...)
}

// startEnvoyWith starts an Envoy with a configuration of the repository, edited for the test.
func startEnvoyWith(t *testing.T, file string, ports testenv.Ports, edits ...edit) *proxy {
	t.Helper()
	original := testenv.RepoFile(t, file)
	// A test machine can be slower than the configuration expects, and Envoy does not wait for what is late.
	config := shortTimeout.ReplaceAllString(original, "${1}timeout: "+longTimeout)
	if config == original {
		t.Fatalf("%s has none of the timeouts that a test has to lengthen", file)
	}
	for _, e := range edits {
		config = e(t, config)
	}
	ports[10000] = 0
	e := testenv.Envoy(t, config, ports)
	return &proxy{EnvoyProxy: e, addr: e.Listener("ingress")}
}

// shortTimeout is a timeout of a sample configuration of less than 10 s, longTimeout what a test has in its place.
var shortTimeout = regexp.MustCompile(`\b(connect_|)timeout: \d(\.\d+)?s`)

const longTimeout = "60s"

// edit changes a configuration of Envoy.
type edit func(t *testing.T, config string) string

// instead puts a text in the place of another, which has to be there once.
func instead(before, after string) edit {
	return func(t *testing.T, config string) string {
		t.Helper()
		if n := strings.Count(config, before); n != 1 {
			t.Fatalf("the configuration has %q %d times, want it once", before, n)
		}
		return strings.Replace(config, before, after, 1)
	}
}

// withoutEarlyRemoval leaves it to the service to remove the identity headers of clients.
func withoutEarlyRemoval(t *testing.T, config string) string {
	t.Helper()
	const indent = "\n                "
	before, after, ok := strings.Cut(config, indent+"early_header_mutation_extensions:")
	end := strings.Index(after, indent+"route_config:")
	if !ok || end < 0 {
		t.Fatal("the configuration has no early_header_mutation_extensions, or no route_config after it")
	}
	return before + after[end:]
}

const extAuthz = "envoy.filters.http.ext_authz"

// without takes an HTTP filter out of the chain. What routes say of it stays, and means nothing.
func without(filter string) edit { return inPlaceOf(filter, "") }

// inPlaceOf puts another HTTP filter, an element of a YAML list, where this one is.
func inPlaceOf(filter, element string) edit {
	return func(t *testing.T, config string) string {
		t.Helper()
		before, _, after := cutFilter(t, config, filter)
		if element != "" {
			element = filterIndent + strings.ReplaceAll(strings.TrimRight(element, "\n"), "\n", filterIndent)
		}
		return before + element + after
	}
}

// filterIndent is what every line of the chain of HTTP filters begins with.
const filterIndent = "\n                  "

// cutFilter parts a configuration before and after an HTTP filter.
func cutFilter(t *testing.T, config, filter string) (before, element, after string) {
	t.Helper()
	head := filterIndent + "- name: " + filter + "\n"
	before, element, ok := strings.Cut(config, head)
	next := strings.Index(element, filterIndent+"- name: envoy.filters.http.")
	if !ok || next < 0 {
		t.Fatalf("the configuration has no HTTP filter %s, or none after it", filter)
	}
	return before, head + element[:next], element[next:]
}
