package istio

import (
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestSidecar sends requests to the Envoy of a pod, as they would arrive there.
func TestSidecar(t *testing.T) {
	t.Parallel()
	m := load(t, "example-sidecar")
	env := environment(t, m, "application", "extauthz")
	for _, service := range []string{"grpc", "debug"} {
		if name := strings.ToUpper(service) + "_PORT"; env[name] == "" {
			t.Errorf("%s is not set: Kubernetes sets it to tcp://... for a Service %s, and the start would fail", name, service)
		}
	}
	c := container(t.TempDir())
	c.mount(t, m, "extauthz-sidecar-rules", "/srv/runtime_data/current/config")
	c.write(t, env["GRPC_UDS"]+".d", nil) // the directory is an emptyDir
	keys := c.addKeys(t, []string{"alice"}, []string{"bob"})
	service := c.serve(t, env)

	bootstrap, err := envoyOf(t, m, "application").Bootstrap(map[string]string{"inbound|8000||": application(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.ValidateEnvoy(t, bootstrap); err != nil {
		t.Fatal(err)
	}
	socket := strconv.Quote(env["GRPC_UDS"])
	if strings.Count(bootstrap, socket) != 1 {
		t.Fatalf("the configuration of Envoy does not have the socket %s exactly once:\n%s", socket, bootstrap)
	}
	bootstrap = strings.Replace(bootstrap, socket, strconv.Quote(c.path(env["GRPC_UDS"])), 1)
	envoy := testenv.Envoy(t, patient(bootstrap), nil)
	client, other := client{addr: envoy.Listener("inbound_8000")}, client{addr: envoy.Listener("inbound_other")}
	alice, bob := keys["alice"], keys["bob"]

	t.Run("no key", func(t *testing.T) {
		a := client.want(t, http.StatusUnauthorized, "GET", "/")
		wantHeader(t, "the client", a.header, "Www-Authenticate", `ApiKey realm="application"`)
		other.want(t, http.StatusUnauthorized, "GET", "/")
	})
	t.Run("a valid key", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "GET", "/", alice, "x-auth-owner: root")
		wantHeader(t, "the application", a.saw, "X-Auth-Owner", "alice")
		wantHeader(t, "the application", a.saw, "X-Api-Key")
		wantPolicies(t, a, "per-owner")
	})
	t.Run("an open path", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "GET", "/healthz", "x-auth-owner: root")
		wantHeader(t, "the application", a.saw, "X-Auth-Owner")
	})
	t.Run("the limit of posts", func(t *testing.T) {
		for range 3 {
			client.want(t, http.StatusOK, "POST", "/posts", alice)
		}
		wantTooMany(t, client.do(t, "POST", "/posts?draft", alice), "posts-per-user")
		wantTooMany(t, client.do(t, "post", "/posts", alice), "posts-per-user")
		client.want(t, http.StatusOK, "POST", "/posts", bob)
		client.want(t, http.StatusOK, "POST", "/postscript", alice)
	})
	t.Run("the probe of the sidecar", func(t *testing.T) {
		probe := exec.Command(binary, "health")
		probe.Env = []string{"GRPC_UDS=" + c.path(env["GRPC_UDS"])}
		if out, err := probe.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", probe, err, out)
		}
	})
	t.Run("extauthz has ended", func(t *testing.T) {
		if err := service.Terminate(); err != nil {
			t.Fatal(err)
		}
		client.want(t, http.StatusServiceUnavailable, "GET", "/", bob)
	})
}

// TestSidecarSocket lets Istio inject its container, and checks that this container mounts the directory of the socket.
func TestSidecarSocket(t *testing.T) {
	t.Parallel()
	m := load(t, "example-sidecar")
	socket := environment(t, m, "application", "extauthz")["GRPC_UDS"]
	for native, containers := range map[string][]string{
		"true":  {"istio-proxy", "extauthz"}, // from Kubernetes 1.33 on: the first init container
		"false": {"extauthz", "istio-proxy"},
	} {
		m.Deployments[0].Spec.Template.Annotations["sidecar.istio.io/nativeSidecar"] = native
		injected, err := m.Inject(m.Deployments[0])
		if err != nil {
			t.Fatal(err)
		}
		pod := injected.Spec.Template.Spec
		volumes := map[string][]string{} // the containers that mount the directory of the socket, by volume
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, mount := range c.VolumeMounts {
				if mount.MountPath == filepath.Dir(socket) {
					volumes[mount.Name] = append(volumes[mount.Name], c.Name)
				}
			}
		}
		if want := map[string][]string{"extauthz": containers}; !maps.EqualFunc(volumes, want, slices.Equal) {
			t.Errorf("native sidecar %s: containers that mount %s: got %v, want %v",
				native, filepath.Dir(socket), volumes, want)
		}
	}
}
