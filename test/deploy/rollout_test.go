package deploy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestRollouts checks that a change of rules does not replace the running pods, and that a change of a setting does.
// The service reloads rules, but reads its settings only once.
func TestRollouts(t *testing.T) {
	ofChart := func(t *testing.T, set string) corev1.PodTemplateSpec {
		t.Helper()
		manifests, err := render(t, "--set", `rules.shop\.yaml=old`, "--set", set)
		if err != nil {
			t.Fatal(err)
		}
		return decode(t, manifests).deployment.Spec.Template
	}
	ofOverlay := func(t *testing.T, literals string) corev1.PodTemplateSpec {
		t.Helper()
		manifests, err := build(overlay(t, `{resources: [BASE], configMapGenerator: [{behavior: merge, `+literals+`}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return decode(t, manifests).deployment.Spec.Template
	}
	for name, c := range map[string]struct {
		pods                   func(*testing.T, string) corev1.PodTemplateSpec
		before, rules, setting string
	}{
		"the chart": {ofChart, "settings.LOG_LEVEL=INFO", `rules.shop\.yaml=new`, "settings.LOG_LEVEL=DEBUG"},
		"an overlay": {
			ofOverlay,
			"name: extauthz-settings, literals: [LOG_LEVEL=INFO]",
			"name: extauthz-rules, literals: [example.yaml=new]",
			"name: extauthz-settings, literals: [LOG_LEVEL=DEBUG]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.pods(t, c.before)
			if diff := cmp.Diff(before, c.pods(t, c.rules)); diff != "" {
				t.Errorf("a change of rules replaces the pods:\n%s", diff)
			}
			if cmp.Equal(before, c.pods(t, c.setting)) {
				t.Error("a change of a setting does not replace the pods, so it has no effect")
			}
		})
	}
}
