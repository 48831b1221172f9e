// Package e2e tests the service as users run it. It runs the binary with environment variables, a real Envoy with the
// sample configuration, and Redis. Clients use only HTTP and gRPC.
package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// binary is the path of the service, which TestMain builds once for all tests.
var binary string

func TestMain(m *testing.M) {
	// Most of the time the tests wait: for a reload, for a queue, for a program to start. The command line overrides this.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err) // the flag exists
	}
	// The service always has the race detector, even if the tests run without it. After a race, the service exits with 66,
	// and Terminate returns an error.
	os.Exit(testenv.WithService(func(path string) int {
		binary = path
		return m.Run()
	}, "-race"))
}

var buildTools = sync.OnceValues(func() (string, error) {
	return testenv.Build(filepath.Dir(binary), "extauthz-tools")
})

// tools returns a command of extauthz-tools, which the first call builds.
func tools(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := buildTools()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(path, args...)
}

// service is the running service.
type service struct {
	*testenv.Program
	grpcPort    int
	httpPort    int
	http, debug string // base URLs
}

// startService starts the service with only these environment variables (NAME=value), and ends it with the test.
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
		httpPort: s.HTTPPort,
		http:     "http://" + testenv.Loopback(s.HTTPPort),
		debug:    "http://" + testenv.Loopback(s.DebugPort),
	}
}

// metric returns the value of a metric. The name includes labels, if any.
func (s *service) metric(t *testing.T, name string) int {
	t.Helper()
	return int(testenv.Metric(t, s.debug, name))
}

// rulesDirectory makes a RUNTIME_ROOT with one rule file. It returns the directory and the path of the file.
func rulesDirectory(t *testing.T, rules string) (root, file string) {
	t.Helper()
	root = testenv.RulesRootWith(t, rules)
	return root, filepath.Join(root, "config", "rules.yaml")
}

// startEnvoy starts an Envoy with the edited sample configuration. It calls a service at this port.
func startEnvoy(t *testing.T, grpcPort int, edits ...edit) *proxy {
	t.Helper()
	return startEnvoyWith(t, "envoy/envoy.yaml", testenv.Ports{8000: testenv.Port(t, application(t)), 8081: grpcPort},
		edits...)
}

// startEnvoyWith starts an Envoy with an edited configuration of the repository.
func startEnvoyWith(t *testing.T, file string, ports testenv.Ports, edits ...edit) *proxy {
	t.Helper()
	original := testenv.RepoFile(t, file)
	// On a slow test machine, answers may take longer than the timeouts of the configuration.
	config := shortTimeout.ReplaceAllString(original, "${1}timeout: "+longTimeout)
	if config == original {
		t.Fatalf("%s has no timeouts to lengthen", file)
	}
	for _, e := range edits {
		config = e(t, config)
	}
	ports[10000] = 0
	e := testenv.Envoy(t, config, ports)
	return &proxy{EnvoyProxy: e, addr: e.Listener("ingress")}
}

// shortTimeout matches a timeout below 10 s in a sample configuration. Tests replace it by longTimeout.
var shortTimeout = regexp.MustCompile(`\b(connect_|)timeout: \d(\.\d+)?s`)

const longTimeout = "60s"

// edit changes a configuration of Envoy.
type edit func(t *testing.T, config string) string

// instead replaces a text, which must occur exactly once.
func instead(before, after string) edit {
	return func(t *testing.T, config string) string {
		t.Helper()
		if n := strings.Count(config, before); n != 1 {
			t.Fatalf("the configuration has %q %d times, want once", before, n)
		}
		return strings.Replace(config, before, after, 1)
	}
}

// withoutEarlyRemoval configures an Envoy that does not remove the identity headers of clients, so that the service
// must.
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

// without removes an HTTP filter from the chain. Its configuration on routes stays and has no effect.
func without(filter string) edit { return inPlaceOf(filter, "") }

// inPlaceOf replaces an HTTP filter by another, which is an element of a YAML list.
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

// filterIndent is the beginning of each line in the chain of HTTP filters.
const filterIndent = "\n                  "

// cutFilter splits a configuration into an HTTP filter and the parts before and after it.
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
