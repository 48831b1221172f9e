package envoygateway

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestIdentityHeaders compares the configuration that Envoy Gateway makes from the examples with the rules of the
// example, as `extauthz check --envoy` does. It uses the unchanged examples, and examples with mistakes that Envoy
// Gateway accepts.
func TestIdentityHeaders(t *testing.T) {
	rules, problems := file.Parse([]file.File{{
		Name: "demo.yaml", Content: []byte(testenv.RepoFile(t, "envoy-gateway/service/rules/demo.yaml")),
	}}, file.Config{})
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	const byPath, byPlan = "- path: { type: PathPrefix, value: / }", "- headers: [{ name: x-auth-plan, value: gold }]"
	again := edit{"extauthz.yaml", "recomputeRoute: false", "recomputeRoute: true"}
	for _, c := range []struct {
		name, policy string
		edits        []edit
		want         string // "": no problem
	}{
		{"over gRPC", "extauthz.yaml", nil, ""},
		{"over HTTP", "extauthz-http.yaml", nil, ""},
		{"a header that is not removed", "extauthz.yaml", []edit{{"extauthz.yaml", "(owner|plan|", "(owner|"}},
			"Envoy does not remove the client's `x-auth-plan`"},
		{"a header that is not listed", "extauthz-http.yaml",
			[]edit{{"extauthz-http.yaml", "[x-auth-owner, x-auth-plan,", "[x-auth-owner,"}},
			"Envoy drops `x-auth-plan` from the response"},
		{"a route by plan", "extauthz.yaml", []edit{{"gateway.yaml", byPath, byPlan}},
			"Envoy chooses this route before ext_authz sets `x-auth-plan`"},
		{"a route by plan, chosen again", "extauthz.yaml", []edit{{"gateway.yaml", byPath, byPlan}, again}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			discovered, err := translate(t, example(t, c.policy, c.edits...))
			if err != nil {
				t.Fatal(err)
			}
			config, err := discovered.bootstrap()
			if err != nil {
				t.Fatal(err)
			}
			checked := doctor.Check(file.File{Name: "envoy.json", Content: []byte(config)},
				doctor.Rules{Policies: rules.Policies})
			if checked.Managers == 0 {
				t.Error("no connection manager calls extauthz")
			}
			if got := checked.Findings.Error(); c.want == "" && len(checked.Findings) > 0 || !strings.Contains(got, c.want) {
				t.Errorf("got these problems, want %q:\n%s", c.want, got)
			}
		})
	}
}
