// Package istio tests the files of istio/ as a mesh would use them. Istio's control plane turns them into
// configurations of Envoy, and a real Envoy runs these. Behind it is the service, with the rules and the settings of
// the same files.
package istio

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/extauthz/extauthz/test/istio/mesh"
	"github.com/extauthz/extauthz/test/testenv"
)

// binary is the path of the service, which TestMain builds once for all tests.
var binary string

func TestMain(m *testing.M) {
	os.Exit(testenv.WithService(func(path string) int {
		binary = path
		return m.Run()
	}))
}

// load reads the mesh-wide settings and these directories of istio/.
func load(t *testing.T, directories ...string) *mesh.Mesh {
	t.Helper()
	for i, d := range directories {
		directories[i] = files(d)
	}
	m, err := mesh.Load(files("mesh-config.yaml"), directories...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// files returns a path below istio/.
func files(path string) string { return filepath.Join("..", "..", "istio", path) }

// envoyOf returns the configuration that Istio makes for the Envoy of this name.
func envoyOf(t *testing.T, m *mesh.Mesh, name string) mesh.Envoy {
	t.Helper()
	envoys, err := m.Generate()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(envoys, func(e mesh.Envoy) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("there is no Envoy %q", name)
	}
	return envoys[i]
}

// patient lengthens the timeouts of a bootstrap, because a test machine may be slow.
func patient(bootstrap string) string {
	return strings.NewReplacer(`"timeout": "0.020s"`, `"timeout": "60s"`, `"timeout": "0.200s"`,
		`"timeout": "60s"`).Replace(bootstrap)
}

// container is the root directory of the container's file system: the file /x of the container is <container>/x.
type container string

func (c container) path(inside string) string { return filepath.Join(string(c), inside) }

func (c container) write(t *testing.T, inside string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(c.path(inside)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path(inside), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mount puts the files of a ConfigMap into a directory.
func (c container) mount(t *testing.T, m *mesh.Mesh, configMap, inside string) {
	t.Helper()
	for name, content := range configMapOf(t, m, configMap) {
		c.write(t, filepath.Join(inside, name), []byte(content))
	}
}

// configMapOf returns the data of a ConfigMap. Its name may end with a hash.
func configMapOf(t *testing.T, m *mesh.Mesh, name string) map[string]string {
	t.Helper()
	for _, c := range m.ConfigMaps {
		if c.Name == name || strings.HasPrefix(c.Name, name+"-") {
			return c.Data
		}
	}
	t.Fatalf("there is no ConfigMap %s", name)
	return nil
}

// The paths of secret files in the components.
const (
	serverSecret = "/etc/extauthz/api-key-secret/secret"
	keysFile     = "/etc/extauthz/api-keys/keys.jsonl"
)

// addKeys makes a server secret and keys, as the comments of the components describe. It returns the headers with the
// keys, by owner.
func (c container) addKeys(t *testing.T, keys ...[]string) map[string]string {
	t.Helper()
	c.write(t, serverSecret, c.run(t, "keys", "secret"))
	c.write(t, keysFile, nil)
	headers := map[string]string{}
	for _, args := range keys {
		owner := args[0]
		out := c.run(t, append([]string{"keys", "create", "--owner"}, args...)...)
		headers[owner] = "x-api-key: " + strings.TrimSpace(string(out))
	}
	return headers
}

// run runs a subcommand of extauthz and returns its stdout.
func (c container) run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{"API_KEY_SECRET_FILE=" + c.path(serverSecret), "API_KEYS_FILE=" + c.path(keysFile)}
	if args[1] == "secret" {
		cmd.Env = nil
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("extauthz %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// serve starts the service with the environment of a container. It listens on other ports, all on loopback.
func (c container) serve(t *testing.T, environment map[string]string) *testenv.RunningService {
	t.Helper()
	env := []string{"AUTHZ_HTTP_TIMEOUT=60s"} // see patient
	for name, value := range environment {
		switch {
		case strings.HasSuffix(name, "HOST"), strings.HasSuffix(name, "PORT"), name == "DRAIN_DELAY":
			continue
		case strings.HasPrefix(value, "/"):
			value = c.path(value)
		}
		env = append(env, name+"="+value)
	}
	return testenv.Service(t, binary, env...)
}

// application starts an application that answers with the headers of the request, as JSON.
func application(t *testing.T) (addr string) {
	return testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header)
	})
}

// client makes requests to one address, each on a new connection.
type client struct{ addr, host string }

// answer is the response that a client receives. saw has the headers that the application received, or is nil.
type answer struct {
	status int
	header http.Header
	saw    http.Header
	body   string
}

// do makes a request with these headers, each `name: value`. A method in lower case goes over HTTP/2, because Envoy
// refuses it over HTTP/1.
func (c client) do(t *testing.T, method, path string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.addr+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = c.host
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header[name] = append(req.Header[name], value) // Set and Add would change the name
	}
	req.Close = true
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(method == strings.ToUpper(method))
	transport.Protocols.SetUnencryptedHTTP2(method != strings.ToUpper(method))
	defer transport.CloseIdleConnections()
	resp, body := testenv.RoundTrip(t, transport, req)
	a := answer{status: resp.StatusCode, header: resp.Header, body: body}
	if json.Unmarshal([]byte(body), &a.saw) != nil {
		a.saw = nil // the body is not from the application
	}
	return a
}

// want checks the status of a request and returns its answer.
func (c client) want(t *testing.T, status int, method, path string, headers ...string) answer {
	t.Helper()
	a := c.do(t, method, path, headers...)
	if a.status != status {
		t.Errorf("%s %s %q: got %d %v %s, want %d", method, path, headers, a.status, a.header, a.body, status)
	}
	return a
}

// wantHeader checks the values of a header. Without values, the header must be absent.
func wantHeader(t *testing.T, whose string, header http.Header, name string, want ...string) {
	t.Helper()
	if got := header.Values(name); !slices.Equal(got, want) {
		t.Errorf("%s, %s: got %q, want %q", whose, name, got, want)
	}
}

// wantPolicies checks that the response names these limits.
func wantPolicies(t *testing.T, a answer, names ...string) {
	t.Helper()
	policies := strings.Join(a.header.Values("Ratelimit-Policy"), ", ")
	for _, name := range names {
		if !strings.Contains(policies, strconv.Quote(name)+";") {
			t.Errorf("ratelimit-policy: got %s, want %q in it", policies, name)
		}
	}
}

// wantTooMany checks that the response is a denial by this limit, with retry-after.
func wantTooMany(t *testing.T, a answer, limit string) {
	t.Helper()
	if a.status != http.StatusTooManyRequests || a.saw != nil {
		t.Fatalf("got %d %s, want 429", a.status, a.body)
	}
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < 1 {
		t.Errorf("retry-after: got %q, want a number of seconds", a.header.Get("Retry-After"))
	}
	wantPolicies(t, a, limit)
}

// environment returns the environment of the sidecar container of this name.
func environment(t *testing.T, m *mesh.Mesh, deployment, name string) map[string]string {
	t.Helper()
	for _, d := range m.Deployments {
		if d.Name != deployment {
			continue
		}
		i := slices.IndexFunc(d.Spec.Template.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 {
			break
		}
		env := map[string]string{}
		for _, e := range d.Spec.Template.Spec.InitContainers[i].Env {
			env[e.Name] = e.Value
		}
		return env
	}
	t.Fatalf("there is no Deployment %s with a sidecar %s", deployment, name)
	return nil
}
