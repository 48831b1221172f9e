package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	const istio = "../../../istio/"
	all := []string{"-mesh-config", istio + "mesh-config.yaml", istio + "service", istio + "gateway", istio + "example"}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no mistake", all, "ok: 6 objects of Istio, and each does something\n"},
		{"another gateway", append([]string{"-gateway-label", "istio=ingress"}, all...),
			istio + "gateway/authorization-policy.yaml: AuthorizationPolicy istio-system/extauthz: it matches nothing and " +
				"does nothing\n"},
		// Policies in istio-system apply to all namespaces.
		{"a gateway in another namespace", append([]string{"-gateway-namespace", "istio-ingress"}, all...), "ok: "},
		{"a missing application", all[:4],
			istio + `gateway/rate-limits.yaml: EnvoyFilter istio-system/extauthz-rate-limits: ` +
				`configPatches[2] (HTTP_ROUTE): it matches nothing`},
		{"a missing directory", append(all, "nothing"), "nothing: "},
		{"a missing file", append([]string{"-mesh-config", "nothing"}, all[2:]...), "open nothing: no such file"},
		{"an invalid label", append([]string{"-gateway-label", "ingress"}, all...),
			"-gateway-label ingress: want a label and its value"},
		{"no arguments", nil, "want -mesh-config FILE and the directories"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			if err := run(c.args, &got); err != nil {
				got.WriteString(err.Error() + "\n")
			}
			if !strings.Contains(got.String(), c.want) {
				t.Errorf("got:\n%s\nwant in it:\n%s", got.String(), c.want)
			}
		})
	}
}
