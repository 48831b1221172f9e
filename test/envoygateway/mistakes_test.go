package envoygateway

import (
	"strings"
	"testing"
)

// TestMistakes makes one mistake at a time in the examples. The error must name the resource of the mistake. Envoy
// Gateway itself does not report a resource that refers to a missing one.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name string
		edit edit
		want []string
	}{
		{
			"an unknown field",
			edit{"extauthz.yaml", "statusOnError: 503", "statusOnErorr: 503"},
			[]string{"kind: SecurityPolicy", "name: extauthz", "spec.extAuth.statusOnErorr", "unknown field"},
		},
		{
			"an invalid value",
			edit{"extauthz.yaml", "type: GRPC", "type: GPRC"},
			[]string{`SecurityPolicy.gateway.envoyproxy.io "extauthz"`, "healthCheck.active.type",
				`supported values: "HTTP", "TCP", "GRPC"`},
		},
		{
			"a successful status on error",
			edit{"extauthz.yaml", "statusOnError: 503", "statusOnError: 200"},
			[]string{`SecurityPolicy.gateway.envoyproxy.io "extauthz"`, "spec.extAuth.statusOnError", "Unsupported value: 200"},
		},
		{
			"a rule that a schema cannot express",
			edit{"extauthz-http.yaml", "    http:\n      backendRefs:", "    grpc: {}\n    http:\n      backendRefs:"},
			[]string{`SecurityPolicy.gateway.envoyproxy.io "extauthz"`, "only one of grpc or http can be specified"},
		},
		{
			"a port that the service does not have",
			edit{"extauthz.yaml", "port: 8081 }", "port: 8082 }"},
			[]string{"SecurityPolicy demo/extauthz: Accepted is False", "TCP Port 8082 not found on service extauthz/extauthz"},
		},
		{
			"a service that does not exist",
			edit{"extauthz.yaml", "{ name: extauthz, namespace: extauthz, port: 8081 }",
				"{ name: extauthx, namespace: extauthz, port: 8081 }"},
			[]string{"SecurityPolicy demo/extauthz: Accepted is False", "extauthx"},
		},
		{
			"a grant for another namespace",
			edit{"extauthz.yaml", "kind: SecurityPolicy, namespace: demo", "kind: SecurityPolicy, namespace: default"},
			[]string{"SecurityPolicy demo/extauthz: Accepted is False",
				"Service extauthz/extauthz not permitted by any ReferenceGrant"},
		},
		{
			"a policy for a gateway that does not exist",
			edit{"extauthz.yaml", "kind: Gateway, name: ingress }\n\n  extAuth:", "kind: Gateway, name: ingres }\n\n  extAuth:"},
			[]string{"SecurityPolicy demo/extauthz: it has no status"},
		},
		{
			"a ClientTrafficPolicy for a gateway that does not exist",
			edit{"extauthz.yaml", "kind: Gateway, name: ingress }\n  headers:", "kind: Gateway, name: ingres }\n  headers:"},
			[]string{"ClientTrafficPolicy demo/extauthz: it has no status"},
		},
		{
			"an exception for a route that does not exist",
			edit{"extauthz.yaml", "kind: HTTPRoute, name: health", "kind: HTTPRoute, name: healthz"},
			[]string{"SecurityPolicy demo/health: it has no status"},
		},
		{
			"two policies for the same gateway",
			edit{"extauthz.yaml", "kind: HTTPRoute, name: health", "kind: Gateway, name: ingress"},
			[]string{"SecurityPolicy demo/",
				"Accepted is False: Unable to target Gateway ingress, another SecurityPolicy has already attached to it"},
		},
		{
			"a class that does not exist",
			edit{"gateway.yaml", "gatewayClassName: eg", "gatewayClassName: ge"},
			[]string{
				"Gateway demo/ingress: it has no status",
				"HTTPRoute demo/application: it has no status",
				"SecurityPolicy demo/extauthz: it has no status",
			},
		},
		{
			"a route to a port that the service does not have",
			edit{
				"gateway.yaml",
				"value: / }\n      backendRefs:\n        - { name: application, port: 8000 }",
				"value: / }\n      backendRefs:\n        - { name: application, port: 8001 }",
			},
			[]string{"HTTPRoute demo/application: ResolvedRefs is False", "TCP Port 8001 not found on Service demo/application"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			policy := "extauthz.yaml"
			if c.edit.file == "extauthz-http.yaml" {
				policy = c.edit.file
			}
			_, err := translate(t, example(t, policy, c.edit))
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant an error with %q", err, want)
				}
			}
		})
	}
}
