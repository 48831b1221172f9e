package istio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/istio/mesh"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestNoMistake checks the unchanged files, with each provider.
func TestNoMistake(t *testing.T) {
	t.Parallel()
	for _, gateway := range []string{"gateway", "gateway-http"} {
		for _, err := range load(t, "service", gateway, "example-sidecar").Check() {
			t.Errorf("with %s: %v", gateway, err)
		}
	}
}

// TestOtherMeshes checks variants of other meshes, which are not mistakes.
func TestOtherMeshes(t *testing.T) {
	t.Parallel()
	const injection = "istio-injection: enabled"
	for _, c := range []struct{ name, file, before, after string }{
		{"sidecars of a revision", "example/namespace.yaml", injection, "istio.io/rev: canary"},
		{"the default of mTLS", "example/namespace.yaml", injection, injection + `
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata:
  name: default
spec:
  mtls: { mode: PERMISSIVE }`},
		{"settings for the start of proxies", "example/namespace.yaml", injection, injection + `
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata:
  name: application
spec:
  concurrency: 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, err := range mistakes(t, c.file, c.before, c.after) {
				t.Error(err)
			}
		})
	}
}

// TestMistakes makes one mistake at a time in the files. Istio does not report these mistakes, or not to their
// author. Check must find each mistake with its place, and nothing else.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		file          string
		before, after string   // the old text, of which the first is replaced, and the new text
		want          []string // parts of the errors; each error begins with its file
	}{
		// Istio omits unknown names.
		{"a field of a filter", "gateway/rate-limits.yaml", "            domain:", "            domainn:",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[0] (HTTP_FILTER)", `unknown field "domainn"`}},
		{"a field of a route", "gateway/rate-limits.yaml", "vh_rate_limits:", "vh_rate_limit:",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[2] (HTTP_ROUTE)", `unknown field "vh_rate_limit"`}},
		{"a field of a cluster", "sidecar/envoyfilter.yaml", "connect_timeout:", "connection_timeout:",
			[]string{"istio/sidecar/envoyfilter.yaml: ", "configPatches[0] (CLUSTER)", `unknown field "connection_timeout"`}},
		{"a type", "gateway/edge.yaml", "header_mutation.v3.HeaderMutation", "header_mutation.v3.HeaderMutations",
			[]string{"istio/gateway/edge.yaml: ", "configPatches[0] (NETWORK_FILTER)", "HeaderMutations"}},
		{"a value", "gateway/edge.yaml", "REJECT_REQUEST", "REJECT_REQUESTS",
			[]string{"istio/gateway/edge.yaml: ", "configPatches[0] (NETWORK_FILTER)", "REJECT_REQUESTS"}},
		{"a field of a patch", "gateway/rate-limits.yaml", "routeConfiguration:", "routeConfig:",
			[]string{"istio/gateway/rate-limits.yaml: ", "EnvoyFilter istio-system/extauthz-rate-limits",
				`unknown field "routeConfig"`}},
		{"the target of a patch", "gateway/rate-limits.yaml", "applyTo: VIRTUAL_HOST", "applyTo: VIRTUALHOST",
			[]string{"istio/gateway/rate-limits.yaml: ", "EnvoyFilter istio-system/extauthz-rate-limits", "VIRTUALHOST"}},
		{"a field of a policy", "gateway/authorization-policy.yaml", "notPaths:", "exceptPaths:",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				`unknown field "exceptPaths"`}},
		{"a field of a provider", "mesh-config.yaml", "        failOpen:", "        failOpn:",
			[]string{"istio/mesh-config.yaml: ", `unknown field "failOpn"`}},
		{"a field of a container", "sidecar/deployment.yaml", "restartPolicy:", "restartPolcy:",
			[]string{"istio/example/application.yaml: ", "Deployment example/application", `unknown field "restartPolcy"`}},
		{"a version", "service/destination-rule.yaml", "networking.istio.io/v1", "networking.istio.io/v2",
			[]string{"istio/service/destination-rule.yaml: ",
				"DestinationRule is not a kind of Istio in networking.istio.io/v2"}},
		{"a kind that the check does not read", "example/gateway.yaml", "networking.istio.io/v1\nkind: Gateway",
			"gateway.networking.k8s.io/v1\nkind: Gateway",
			[]string{"istio/example/gateway.yaml: ", "Gateway example/application",
				"Kubernetes' Gateway API, which this check does not read"}},

		// Istio does not apply a patch or a policy that matches nothing.
		{"a virtual host without its port", "gateway/rate-limits.yaml", "name: app.example.com:80", "name: app.example.com",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[2] (HTTP_ROUTE)",
				`there is no virtual host "app.example.com", but app.example.com:80`}},
		{"a virtual host with the port of the pod", "sidecar/envoyfilter.yaml", "inbound|http|80", "inbound|http|8000",
			[]string{"istio/sidecar/envoyfilter.yaml: ", "configPatches[4] (VIRTUAL_HOST)",
				`there is no virtual host "inbound|http|8000", but`, "inbound|http|80"}},
		{"a route", "gateway/rate-limits.yaml", "name: posts", "name: post",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[2] (HTTP_ROUTE)",
				`the virtual host app.example.com:80 has no route "post", but "posts", "rest"`}},
		{"the name of a route, in the VirtualService", "example/gateway.yaml", "- name: posts", "- name: articles",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[2] (HTTP_ROUTE)",
				`has no route "posts", but "articles", "rest"`}},
		{"a filter", "gateway/rate-limits.yaml", "name: envoy.filters.http.router", "name: envoy.router.http",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[0] (HTTP_FILTER)", "it matches nothing"}},
		{"a context", "sidecar/envoyfilter.yaml", "context: SIDECAR_INBOUND\n        routeConf",
			"context: GATEWAY\n        routeConf",
			[]string{"istio/sidecar/envoyfilter.yaml: ", "configPatches[4] (VIRTUAL_HOST)", "it matches nothing"}},
		{"a label of an AuthorizationPolicy", "gateway/authorization-policy.yaml", "istio: ingressgateway", "istio: ingress",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				"it matches nothing",
				"istio/gateway/edge.yaml: ", "configPatches[1] (HTTP_FILTER)"}}, // it would change ext_authz
		{"a label of the pods with a sidecar", "sidecar/deployment.yaml", "extauthz: sidecar", "extauthz: beside",
			[]string{"istio/sidecar/envoyfilter.yaml: ", "configPatches[0] (CLUSTER): it matches nothing",
				"istio/sidecar/envoyfilter.yaml: ",
				"configPatches[1] (HTTP_FILTER): it matches nothing", "istio/sidecar/envoyfilter.yaml: ",
				"configPatches[2] (HTTP_FILTER): it matches nothing",
				"istio/sidecar/envoyfilter.yaml: ", "configPatches[3] (NETWORK_FILTER): it matches nothing",
				"istio/sidecar/envoyfilter.yaml: ", "configPatches[4] (VIRTUAL_HOST): it matches nothing"}},
		{"a namespace without sidecars", "example/namespace.yaml", "istio-injection: enabled", "istio-injection: disabled",
			slices.Repeat([]string{"istio/sidecar/envoyfilter.yaml: ", "it matches nothing"}, 5)},
		{"a host of a DestinationRule", "service/destination-rule.yaml", "host: extauthz.", "host: extauth.",
			[]string{"istio/service/destination-rule.yaml: ", "DestinationRule extauthz/extauthz", "it matches nothing"}},

		// Envoy refuses a configuration without a required field: the gateway keeps the previous one, and new pods do not
		// start.
		{"a required field", "gateway/rate-limits.yaml", "            domain: application\n", "",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[0] (HTTP_FILTER)", "RateLimit.Domain"}},
		{"a required field of a message in it", "gateway/rate-limits.yaml",
			"generic_key: { descriptor_key: action, descriptor_value: post }", "generic_key: { descriptor_key: action }",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[2] (HTTP_ROUTE)", "DescriptorValue"}},

		{"HTTP without gateway-http", "gateway/authorization-policy.yaml", "name: extauthz-grpc", "name: extauthz-http",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				"GrpcService.TargetSpecifier"}},

		// Headers that identify the caller for the application, which a client could send.
		{"an identity header that the gateway does not remove", "gateway/edge.yaml", "(owner|plan|", "(owner|",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				"Envoy does not remove the client's `x-auth-plan` before it chooses a route"}},
		{"an identity header that a sidecar does not remove", "sidecar/envoyfilter.yaml", "(owner|plan|", "(owner|",
			[]string{"istio/sidecar/envoyfilter.yaml: ", "configPatches[1] (HTTP_FILTER)",
				"Envoy does not remove the client's `x-auth-plan` before it chooses a route"}},
		{"a route by a header of ext_authz", "example/gateway.yaml", "      match:\n",
			"      match:\n        - headers: { x-auth-plan: { exact: gold } }\n",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				"Envoy chooses this route before ext_authz sets `x-auth-plan`"}},

		// References to missing objects make every request wait or fail.
		{"the cluster of a filter", "gateway/rate-limits.yaml", "cluster_name: outbound|8081||",
			"cluster_name: outbound|8081|",
			[]string{"istio/gateway/rate-limits.yaml: ", "configPatches[0] (HTTP_FILTER)",
				`there is no cluster "outbound|8081|extauthz.extauthz.svc.cluster.local"`}},
		{"a provider", "gateway/authorization-policy.yaml", "name: extauthz-grpc", "name: extauthz",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				"meshConfig.extensionProviders has no such provider"}},
		{"a policy of another provider", "gateway/authorization-policy.yaml", "notPaths: [/healthz]",
			"notPaths: [/healthz]" + otherPolicy,
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/",
				"a policy of another provider selects the same pods"}},
		{"the Service of a provider", "mesh-config.yaml", "service: extauthz.extauthz.svc", "service: extauthz.default.svc",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				"or there is no such Service"}},
		{"the port of a provider", "mesh-config.yaml", "port: 8081", "port: 9001",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				`there is no cluster "outbound|9001||extauthz`}},
		{"the name of a port", "../deploy/kustomize/base/services.yaml", "name: grpc,", "name: rpc,",
			[]string{"the cluster outbound|8081||extauthz.extauthz.svc.cluster.local uses HTTP/1.1",
				"name the port of the Service grpc"}},
		{"a timeout", "mesh-config.yaml", "        timeout: 0.2s\n", "",
			[]string{"istio/gateway/authorization-policy.yaml: ", "AuthorizationPolicy istio-system/extauthz",
				"the timeout of ext_authz is 10m0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := mistakes(t, c.file, c.before, c.after)
			text := fmt.Sprint(errors.Join(found...))
			if want := max(1, strings.Count(strings.Join(c.want, ""), ".yaml: ")); len(found) != want {
				t.Errorf("got %d errors, want %d:\n%s", len(found), want, text)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("got:\n%s\nwant %q in it", text, want)
				}
			}
		})
	}
}

// TestUnlistedIdentityHeader checks the provider's list of headers. Over HTTP, the application receives only listed
// headers.
func TestUnlistedIdentityHeader(t *testing.T) {
	t.Parallel()
	m, err := loadWith(t, "mesh-config.yaml", "[x-auth-owner, x-auth-plan,", "[x-auth-owner,")
	if err != nil {
		t.Fatal(err)
	}
	if found := m.Check(); len(found) > 0 {
		t.Errorf("got %v, want no mistakes: gRPC does not use the list", found)
	}
	m, err = loadGatewayWith(t, "gateway-http", "mesh-config.yaml", "[x-auth-owner, x-auth-plan,", "[x-auth-owner,")
	if err != nil {
		t.Fatal(err)
	}
	found := errors.Join(m.Check()...)
	if want := "Envoy drops `x-auth-plan` from the response"; found == nil || !strings.Contains(found.Error(), want) {
		t.Errorf("got %v, want %q in it", found, want)
	}
}

// mistakes replaces a text and returns the mistakes that Check finds.
func mistakes(t *testing.T, file, before, after string) []error {
	t.Helper()
	m, err := loadWith(t, file, before, after)
	if err == nil {
		return m.Check()
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// loadWith copies istio/ and deploy/kustomize, changes texts in one of the files, and loads the copy. The texts are
// pairs of old and new text; the first occurrence of the old text is replaced.
func loadWith(t *testing.T, file string, texts ...string) (*mesh.Mesh, error) {
	t.Helper()
	return loadGatewayWith(t, "gateway", file, texts...)
}

// loadGatewayWith is loadWith for the files of gateway or of gateway-http.
func loadGatewayWith(t *testing.T, gateway, file string, texts ...string) (*mesh.Mesh, error) {
	t.Helper()
	return loadAllWith(t, []string{"service", gateway, "example-sidecar"}, file, texts...)
}

// loadAllWith is loadWith for these directories, which have to fit in one mesh.
func loadAllWith(t *testing.T, directories []string, file string, texts ...string) (*mesh.Mesh, error) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"istio", filepath.Join("deploy", "kustomize")} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join(testenv.RepoRoot(t), dir))); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, "istio", file)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := string(content)
	for pair := range slices.Chunk(texts, 2) {
		if !strings.Contains(changed, pair[0]) {
			t.Fatalf("%s has no %q", file, pair[0])
		}
		changed = strings.Replace(changed, pair[0], pair[1], 1)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range directories {
		paths = append(paths, filepath.Join(root, "istio", d))
	}
	return mesh.Load(filepath.Join(root, "istio", "mesh-config.yaml"), paths...)
}
