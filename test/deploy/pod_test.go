package deploy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/extauthz/extauthz/test/testenv"
)

// existing has the Secrets and ConfigMaps that an operator would have created, by name and key.
type existing map[string]map[string]string

// kubernetesEnvironment has the variables that Kubernetes sets in every container, also with enableServiceLinks:
// false, and those of the image.
var kubernetesEnvironment = []string{
	"KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443",
	"KUBERNETES_PORT=tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443",
	"KUBERNETES_PORT_443_TCP_PROTO=tcp",
	"KUBERNETES_PORT_443_TCP_PORT=443", "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
	"HOSTNAME=extauthz-5d4f8c7b9-x2x7q", "HOME=/home/nonroot",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
}

// rootFiles writes the files of the pod's mounts below a directory that represents its root, and returns the directory.
func (o *objects) rootFiles(t *testing.T, given existing) string {
	t.Helper()
	root := t.TempDir()
	volumes := map[string]corev1.Volume{}
	for _, v := range o.pod().Volumes {
		volumes[v.Name] = v
	}
	for _, m := range o.container.VolumeMounts {
		v, ok := volumes[m.Name]
		if !ok {
			t.Fatalf("%s mounts the volume %s, which does not exist", m.MountPath, m.Name)
		}
		for name, content := range o.files(t, v, given) {
			write(t, filepath.Join(root, m.MountPath, name), []byte(content))
		}
		delete(volumes, m.Name)
	}
	for name := range volumes {
		t.Errorf("the volume %s is not mounted", name)
	}
	return root
}

// files returns the files of a volume.
func (o *objects) files(t *testing.T, v corev1.Volume, given existing) map[string]string {
	t.Helper()
	var data map[string]string
	var items []corev1.KeyToPath
	switch {
	case v.ConfigMap != nil:
		data, items = given[v.ConfigMap.Name], v.ConfigMap.Items
		if c, ok := o.configMaps[v.ConfigMap.Name]; ok {
			data = c.Data
		}
	case v.Secret != nil:
		data, items = given[v.Secret.SecretName], v.Secret.Items
	}
	if len(data) == 0 {
		t.Fatalf("the source of the volume %s does not exist or is empty: %v", v.Name, v.VolumeSource)
	}
	if items == nil {
		return data
	}
	files := map[string]string{}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			t.Fatalf("the volume %s has no key %s", v.Name, item.Key)
		}
		files[item.Path] = content
	}
	return files
}

// variables returns the environment of the container, with kubernetesEnvironment. Paths in it are below the root.
func (o *objects) variables(root string) []string {
	all := kubernetesEnvironment
	for name, value := range o.environment {
		if strings.HasPrefix(value, "/") {
			value = filepath.Join(root, value)
		}
		all = append(all[:len(all):len(all)], name+"="+value)
	}
	return all
}

// run runs the service as the pod would, with its environment and its files, and calls the probes. Only the ports, the
// addresses and the root of the files differ from a pod.
func (o *objects) run(t *testing.T, given existing) {
	t.Helper()
	root := o.rootFiles(t, given)
	check := exec.Command(binary, "check", filepath.Join(root, "srv/runtime_data/current/config"))
	check.Env = o.variables(root)
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("extauthz check of the rules in the ConfigMap: %v\n%s", err, out)
	}
	o.needsItsRules(t, given)
	if o.environment["STRICT_ENVIRONMENT"] == "true" && o.environment["GRPC_PLAINTEXT"] != "allow" {
		t.Error("GRPC_PLAINTEXT is not allow: in a pod, unlike on loopback here, the service would not start")
	}
	s := testenv.Service(t, binary, append(o.variables(root), "DEBUG_HOST=127.0.0.1", "DRAIN_DELAY=0s")...)
	for what, probe := range o.probes() {
		if probe == nil {
			t.Errorf("the container has no %s", what)
			continue
		}
		if err := callProbe(probe, s); err != nil {
			t.Errorf("the %s: %v", what, err)
		}
	}
	want := []string{"extauthz_build_info"}
	if o.environment["REDIS_URL_FILE"] != "" {
		want = append(want, "extauthz_store_up 1\n")
	}
	if o.environment["GRPC_SERVER_TLS_CERT"] != "" {
		want = append(want, `extauthz_certificate_expiry_timestamp_seconds{certificate="grpc_server"}`)
	}
	if o.environment["API_KEYS_FILE"] != "" {
		want = append(want, "extauthz_api_keys 1\n")
	}
	testenv.Eventually(t, func() error {
		metrics, err := get("http://" + testenv.Loopback(s.DebugPort) + "/metrics")
		for _, line := range want {
			if err == nil && !strings.Contains(metrics, line) {
				err = fmt.Errorf("/metrics lacks %q", line)
			}
		}
		return err
	}, "metrics that show the Redis and the keys of the pod")
	if strings.Contains(s.Output(), "an environment variable has no effect") {
		t.Errorf("the service logged a warning about its settings:\n%s", s.Output())
	}
}

// needsItsRules runs the service without the rules of the pod. It must not start with its sample rules.
func (o *objects) needsItsRules(t *testing.T, given existing) {
	t.Helper()
	root := o.rootFiles(t, given)
	rules := filepath.Join(root, "srv/runtime_data/current/config")
	if err := os.Rename(rules, rules+"s"); err != nil {
		t.Fatal(err)
	}
	serve := exec.CommandContext(t.Context(), binary)
	serve.Env = append(o.variables(root), "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0")
	out, err := serve.CombinedOutput()
	if serve.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), rules+" does not exist") {
		t.Errorf("with the rules at %ss: got %v, want exit code 1 and the missing path in\n%s", rules, err, out)
	}
}

// callProbe calls a probe as a kubelet does.
func callProbe(probe *corev1.Probe, s *testenv.RunningService) error {
	if probe.GRPC != nil {
		health := exec.Command(binary, "health", "--timeout=1m", "--service", *probe.GRPC.Service)
		health.Env = []string{"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + strconv.Itoa(s.GRPCPort)}
		_, err := output(health)
		return err
	}
	_, err := get("http://" + testenv.Loopback(s.HTTPPort) + probe.HTTPGet.Path)
	return err
}

// get returns the body of a URL. A status other than 200 is an error.
func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

// sentinelsWithPassword starts a master and its sentinels, which all require the password.
func sentinelsWithPassword(t *testing.T, password string) *testenv.RedisSentinels {
	t.Helper()
	s := testenv.Sentinels(t)
	run := func(server *testenv.RedisServer, words ...string) {
		t.Helper()
		if _, err := server.Do(words...); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range s.Sentinels {
		run(one, "SENTINEL", "SET", s.Name, "auth-pass", password)
		run(one, "ACL", "SETUSER", "default", ">"+password)
	}
	run(s.Master, "CONFIG", "SET", "requirepass", password)
	return s
}

// operatorsObjects makes the objects that all examples expect: a running Redis, a server secret, a file with a key, and
// rules. Redis requires a client certificate on its TLS port.
func operatorsObjects(t *testing.T) existing {
	t.Helper()
	const password = "correct-horse"
	dir, tlsPort := t.TempDir(), testenv.FreePort(t)
	ca, cert, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	authority := testenv.NewAuthority(t)
	authority.Write(t, ca)
	testenv.WriteCertificate(t, authority.Issue(t, "spiffe://example.com/redis", time.Hour), cert, key)
	redis := testenv.Redis(t, "--requirepass", password, "--tls-port", strconv.Itoa(tlsPort),
		"--tls-ca-cert-file", ca, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "yes")
	sentinels := sentinelsWithPassword(t, password)
	serverSecret, err := output(exec.Command(binary, "keys", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "keys.jsonl")
	create := exec.Command(binary, "keys", "create", "--owner", "alice")
	create.Env = []string{"API_KEYS_FILE=" + file, "API_KEY_SECRET=" + strings.TrimSpace(serverSecret)}
	if _, err := output(create); err != nil {
		t.Fatal(err)
	}
	return existing{
		"extauthz-redis": {
			"url": "redis://:" + password + "@" + redis.Addr, "address": "redis://" + redis.Addr, "password": password + "\n",
			"tls-address": "rediss://" + testenv.Loopback(tlsPort),
			"second":      "redis://" + redis.Addr, "second-password": password,
			"sentinels": sentinels.Addrs(), "sentinel-password": password,
		},
		"extauthz-redis-tls": {"ca.crt": string(read(t, ca)), "tls.crt": string(read(t, cert)),
			"tls.key": string(read(t, key))},
		"extauthz-tls": {"ca.crt": string(read(t, ca)), "tls.crt": string(read(t, cert)),
			"tls.key": string(read(t, key))},
		"extauthz-api-key-secret": {"secret": serverSecret, "previous": strings.Repeat("former", 4)},
		"extauthz-api-keys":       {"keys.jsonl": string(read(t, file))},
		"shop-rules":              {"shop.yaml": anyRules},
		"issuer-keys":             {"keys.json": `{"keys": []}`},
	}
}
