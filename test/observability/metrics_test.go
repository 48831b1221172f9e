package observability

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestMetrics holds what the service exports to promtool's rules, and to the table in the documentation.
func TestMetrics(t *testing.T) {
	service := startService(t)
	envoy := startEnvoy(t, service.GRPCPort)
	var text string
	testenv.Eventually(t, func() error {
		if err := send(envoy.Listener("ingress")); err != nil {
			return err
		}
		resp, err := http.Get("http://" + testenv.Loopback(service.DebugPort) + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		text = string(body)
		for _, late := range []string{"extauthz_jwks_last_success", "extauthz_request_duration_seconds"} {
			if err == nil && !strings.Contains(text, late) {
				err = fmt.Errorf("no %s yet", late)
			}
		}
		return err
	}, "all metrics to be there")
	if err := promtool(t, text, "check", "metrics"); err != nil {
		t.Error(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, table(families))
}

// table is that of the documentation: name, type, labels, and what the service itself says of it.
func table(families map[string]*dto.MetricFamily) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !strings.HasPrefix(name, "extauthz_") {
			continue
		}
		family := families[name]
		labels := map[string]bool{}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(family.GetType().String()),
			strings.Join(slices.Sorted(maps.Keys(labels)), ", "), strings.TrimSuffix(family.GetHelp(), "."))
	}
	return b.String()
}

// checkTable compares the table with the one in the documentation, or writes it there.
func checkTable(t *testing.T, want string) {
	t.Helper()
	const begin, end = "<!-- metrics -->\n", "<!-- /metrics -->"
	text := testenv.RepoFile(t, "docs/observability.md")
	before, rest, ok := strings.Cut(text, begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/observability.md has no place for the table, between %q and %q", begin, end)
	}
	if *update {
		if err := os.WriteFile(path(t, "docs/observability.md"), []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of metrics in docs/observability.md; `go test -run TestMetrics -update` writes it (-want +got)\n%s", diff)
	}
}
