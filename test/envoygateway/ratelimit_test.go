package envoygateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/test/testenv"
)

// inNamespace is set, to a directory, for the part of TestRateLimitService that runs in namespaces of its own.
const inNamespace = "EXTAUTHZ_TEST_NAMESPACE"

// Addresses of the two hosts of the test: that of Envoy Gateway, its Envoy and Redis, and the pod of the service.
const (
	gatewayAddr = "10.99.0.1"
	podAddr     = "10.99.0.2"
)

// podEnvironment is what Envoy Gateway 1.9.1 sets in the pod of its rate limit service
// (internal/infrastructure/kubernetes/ratelimit/resource.go), with a Redis.
var podEnvironment = []string{
	"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
	"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW",
	"CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001", "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
	"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/certs/tls.crt", "GRPC_SERVER_TLS_KEY=/certs/tls.key",
	"GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
	"CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key",
	"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
	"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis.redis-system.svc.cluster.local:6379",
	"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
}

// standInForAIGateway makes Envoy write the metadata that Envoy AI Gateway writes: each response used 600 tokens.
const standInForAIGateway = `
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {name: ai-gateway, namespace: demo}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: application}]
  lua:
    - type: Inline
      inline: |
        function envoy_on_request(handle)
          handle:streamInfo():dynamicMetadata():set("io.envoy.ai_gateway", "zero", 0)
        end
        function envoy_on_response(handle)
          handle:streamInfo():dynamicMetadata():set("io.envoy.ai_gateway", "llm_total_token", 600)
        end
`

// TestRateLimitService runs Envoy Gateway itself, with the service in place of its rate limit service. The limits of a
// BackendTrafficPolicy come by xDS with mutual TLS, and the Envoy of the gateway enforces them. The service has the
// environment, the ports and the paths of its pod. All of this runs in namespaces of its own, because Envoy Gateway
// listens on fixed ports.
func TestRateLimitService(t *testing.T) {
	dir := os.Getenv(inNamespace)
	if dir == "" {
		enterNamespace(t)
		return
	}
	redis := exec.Command("redis-server", "--bind", gatewayAddr, "--save", "", "--protected-mode", "no")
	pod := startPod(t)
	testenv.Start(t, redis, func() error { return exec.Command("redis-cli", "-h", gatewayAddr, "ping").Run() })
	service := exec.Command("nsenter", "--net=/proc/"+pod+"/ns/net", filepath.Join(dir, "ratelimit"))
	service.Env = append(podEnvironment, "REDIS_TIMEOUT=60s")
	running := testenv.Start(t, service, probe) // before Envoy Gateway: it waits for its xDS server
	startGateway(t, dir, testenv.Port(t, application(t)))

	g := gateway{"http://127.0.0.1:8888"}
	policy := testenv.RepoFile(t, "envoy-gateway/limits.yaml")
	const five, two = "requests: 5, unit: Minute", "requests: 2, unit: Hour"
	usePolicy(t, dir, strings.Replace(policy, five, two, 1))
	awaitLimit(t, g, "2")
	for _, step := range []struct {
		user string
		want int
	}{{"ann", 200}, {"ann", 200}, {"ann", 429}, {"bob", 200}} {
		g.get(t, "/", "x-user", step.user).wants(t, step.want, "a request of "+step.user)
	}
	checkDashboard(t)

	usePolicy(t, dir, strings.Replace(policy, five, "requests: 3, unit: Hour", 1))
	awaitLimit(t, g, "3")
	g.get(t, "/", "x-user", "ann").wants(t, 200, "ann after the limit was raised: her counts stay")
	g.get(t, "/", "x-user", "ann").wants(t, 429, "ann after her third request")

	// Envoy Gateway 1.9.1 panics at `number` if its resources come from files, so the cost of 0 is metadata here, too.
	const number, metadata = "Number, number: 0", "Metadata, metadata: {namespace: io.envoy.ai_gateway, key: zero}"
	tokens := strings.Replace(testenv.RepoFile(t, "envoy-gateway/token-limits.yaml"), number, metadata, 1)
	usePolicy(t, dir, tokens+standInForAIGateway)
	awaitLimit(t, g, "1000")
	answers := 0
	testenv.Eventually(t, func() error { // the cost arrives after the response
		if got := g.get(t, "/", "x-user", "carl").status; got != 429 {
			answers++
			return fmt.Errorf("carl's status is %d", got)
		}
		return nil
	}, "a limit of 1000 tokens")
	if answers < 2 {
		t.Errorf("carl got %d answers of 600 tokens, want 2 at least", answers)
	}
	g.get(t, "/", "x-user", "dora").wants(t, 200, "a request of dora, who has tokens of her own")

	usePolicy(t, dir, "")
	testenv.Eventually(t, func() error {
		if got := g.get(t, "/", "x-user", "ann").status; got != 200 {
			return fmt.Errorf("the status is %d", got)
		}
		return nil
	}, "no limit without the policy")
	if strings.Contains(running.Output(), "level=ERROR") {
		t.Errorf("errors in the log of the service\n%s", running.Output())
	}
}

// enterNamespace runs this test again in namespaces of its own.
func enterNamespace(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	binary, err := testenv.Build(dir, "extauthz")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(binary, filepath.Join(dir, "ratelimit")); err != nil {
		t.Fatal(err)
	}
	// Envoy Gateway makes the certificates of its own connections: xDS, and that of its Envoys to the service.
	certgen := exec.Command(testenv.Binary(t, "envoy-gateway", ""), "certgen", "--local", "--config-home", dir)
	if out, err := certgen.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", certgen, err, out)
	}
	certificates := filepath.Join(dir, "certs")
	if err := os.CopyFS(certificates, os.DirFS(filepath.Join(certificates, "envoy-rate-limit"))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "hosts"), "127.0.0.1 localhost\n"+
		gatewayAddr+" envoy-gateway redis.redis-system.svc.cluster.local\n"+
		podAddr+" envoy-ratelimit.envoy-gateway-system envoy-ratelimit.envoy-gateway-system.svc.cluster.local\n")
	args := []string{"--net", "--mount"}
	if os.Getuid() != 0 {
		args = append(args, "--map-root-user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare",
		append(args, "testdata/namespace.sh", dir, self, "-test.run=^TestRateLimitService$", "-test.v")...)
	cmd.Env = append(os.Environ(), inNamespace+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestRateLimitService")) {
		t.Fatalf("in the namespaces: %v\n%s", err, out)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startPod makes the network of a pod, and returns the id of a process in it.
func startPod(t *testing.T) (pid string) {
	t.Helper()
	holder := exec.Command("unshare", "--net", "sh", "-c", "echo $$; exec sleep infinity")
	var out testenv.Output
	holder.Stdout = &out
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	testenv.Eventually(t, func() error {
		if pid = strings.TrimSpace(out.String()); pid == "" {
			return io.EOF
		}
		return nil
	}, "the process of the pod")
	for _, command := range []string{
		"ip link add host type veth peer name pod netns " + pid,
		"ip addr add " + gatewayAddr + "/24 dev host", "ip link set host up",
		"nsenter --net=/proc/" + pid + "/ns/net ip link set lo up",
		"nsenter --net=/proc/" + pid + "/ns/net ip addr add " + podAddr + "/24 dev pod",
		"nsenter --net=/proc/" + pid + "/ns/net ip link set pod up",
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	return pid
}

// probe is the probe of the pod.
func probe() error {
	res, err := http.Get("http://" + podAddr + ":8080/healthcheck")
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthcheck: %s", res.Status)
	}
	return nil
}

// startGateway starts Envoy Gateway with the rate limit section of docs/envoy-gateway.md, and a gateway in front of an
// application on a port of loopback.
func startGateway(t *testing.T, dir string, port int) {
	t.Helper()
	_, block, _ := strings.Cut(testenv.RepoFile(t, "docs/envoy-gateway.md"), "```yaml\nconfig:\n")
	block, _, _ = strings.Cut("config:\n"+block, "\n```")
	var values struct {
		Config struct {
			EnvoyGateway map[string]any `yaml:"envoyGateway"`
		}
	}
	if err := yaml.Unmarshal([]byte(block), &values); err != nil || values.Config.EnvoyGateway["rateLimit"] == nil {
		t.Fatalf("the values of docs/envoy-gateway.md: %v\n%s", err, block)
	}
	limit := values.Config.EnvoyGateway["rateLimit"].(map[string]any)
	limit["timeout"] = "60s" // a busy machine is not a fault: after 20 ms, the default, Envoy lets a request pass
	limits, err := yaml.Marshal(map[string]any{"rateLimit": limit})
	if err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(dir, "data", "envoy-versions", "1.40.0", "bin")
	resources := filepath.Join(dir, "resources")
	for _, d := range []string{version, resources} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	envoy, err := filepath.EvalSymlinks(testenv.Binary(t, "envoy", "ENVOY_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(envoy, filepath.Join(version, "envoy")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "envoy-gateway.yaml"), fmt.Sprintf(`
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: [%[1]s/resources]}}
    infrastructure:
      type: Host
      host: {configHome: %[1]s, dataHome: %[1]s/data, stateHome: %[1]s/state, runtimeDir: %[1]s/run}
extensionApis: {enableBackend: true, enableLua: true}
%[2]s`, dir, limits))
	write(t, filepath.Join(resources, "gateway.yaml"), fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host, namespace: envoy-gateway-system}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: host, namespace: envoy-gateway-system}
spec: {provider: {type: Host, host: {envoyVersion: 1.40.0}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: ingress, namespace: demo}
spec:
  gatewayClassName: eg
  listeners: [{name: http, protocol: HTTP, port: 8888}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: application, namespace: demo}
spec:
  parentRefs: [{name: ingress}]
  rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: application}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: application, namespace: demo}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: %d}}]}
`, port))
	server := exec.Command(testenv.Binary(t, "envoy-gateway", ""), "server", "--config-path",
		filepath.Join(dir, "envoy-gateway.yaml"))
	testenv.Start(t, server, func() error {
		res, err := http.Get("http://127.0.0.1:8888/")
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
}

// usePolicy makes a policy the only one, "" for none.
func usePolicy(t *testing.T, dir, policy string) {
	t.Helper()
	path := filepath.Join(dir, "resources", "policy.yaml")
	if policy == "" {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	write(t, path, policy)
}

// awaitLimit waits until Envoy enforces a limit, as its header x-ratelimit-limit says. Each attempt is another user.
func awaitLimit(t *testing.T, g gateway, limit string) {
	t.Helper()
	attempt := 0
	testenv.Eventually(t, func() error {
		attempt++
		a := g.get(t, "/", "x-user", fmt.Sprintf("attempt %d with %s", attempt, limit))
		if got := a.header.Get("x-ratelimit-limit"); a.status != 200 || !strings.HasPrefix(got, limit+",") {
			return fmt.Errorf("%d %v", a.status, a.header)
		}
		return nil
	}, "a limit of "+limit)
}

// checkDashboard checks the metrics that the dashboard of Envoy Gateway shows, after one denied request.
func checkDashboard(t *testing.T) {
	t.Helper()
	res, err := http.Get("http://" + podAddr + ":19001/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	const labels = `\{domain="demo/ingress/http",key1="[^"]+",key2="rule-0-match-0"\} `
	for name, value := range map[string]string{"total_hits": `[1-9]\d*`, "over_limit": "1", "near_limit": `\d+`} {
		if !regexp.MustCompile(`(?m)^ratelimit_service_rate_limit_` + name + labels + value + "$").Match(content) {
			t.Errorf("no metric %s with %s in\n%s", name, value, content)
		}
	}
}
