package observability

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestPrometheus runs Prometheus with the configuration of docker-compose. It scrapes the service and two Envoys. Each
// panel and each selector of an alert must have a result. The test causes faults, and the alerts must fire: Redis
// stops, new rules have a mistake, an Envoy cannot reach the service, a limit is low. The certificate is valid for an
// hour, so the alert for certificates must fire, too.
func TestPrometheus(t *testing.T) {
	service := startService(t)
	envoy, cutOff := startEnvoy(t, service.GRPCPort), startEnvoy(t, testenv.FreePort(t))
	p := startPrometheus(t, service, envoy, cutOff)
	traffic := func() error {
		for _, e := range []*testenv.EnvoyProxy{envoy, cutOff} {
			if err := send(e.Listener("ingress")); err != nil {
				return err
			}
		}
		return nil
	}
	decided := `extauthz_ratelimit_decisions_total{domain="sample", rule="masked_remote_address", decision="allowed"} > 0`
	testenv.Eventually(t, func() error {
		if err := traffic(); err != nil {
			return err
		}
		return p.answers(decided)
	}, "Prometheus to have decided requests")
	service.redis.Kill()
	service.write(t, "domain: sample\ndescriptors: 1\n")

	questions := questions(t)
	testenv.Eventually(t, func() error {
		if err := traffic(); err != nil {
			return err
		}
		questions = slices.DeleteFunc(questions, func(q question) bool { return p.answers(q.expr) == nil })
		if len(questions) > 0 {
			return fmt.Errorf("%d expressions have no result: %s", len(questions), questions)
		}
		return nil
	}, "a result of each expression")

	testenv.Eventually(t, func() error {
		if err := traffic(); err != nil {
			return err
		}
		return p.active("ExtauthzStoreDown", "ExtauthzFallbackActive", "ExtauthzReloadFailed", "ExtauthzRuleDeniesMost",
			"ExtauthzLimitsSkipped", "ExtauthzCheckUnanswered", "ExtauthzCertificateExpiring")
	}, "the alerts to fire")
}

// question is an expression and its place.
type question struct{ where, expr string }

func (q question) String() string { return q.where + ": " + q.expr + "\n" }

// questions returns all expressions that must have a result: those of panels and variables, and the selectors of
// alerts. The whole expression of an alert has no result while the alert does not fire.
func questions(t *testing.T) (all []question) {
	t.Helper()
	// The values of the variables. Here, 10 s are enough for several scrapes.
	values := map[string]string{
		"__rate_interval": "10s", "namespace": ".*", "envoy_namespace": ".*", "job": ".*", "instance": ".*",
	}
	for _, d := range dashboards(t) {
		values["domain"], values["rule"] = ".*", ".*"
		if slices.ContainsFunc(d.Templating.List, func(v variable) bool { return v.Name == "rule" && !v.Multi }) {
			values["domain"], values["rule"] = "sample", "masked_remote_address"
		}
		for _, v := range d.Templating.List {
			m := labelValues.FindStringSubmatch(string(v.Query))
			if m == nil || m[2] == "namespace" { // only Kubernetes sets namespace
				continue
			}
			selector := strings.ReplaceAll(fill(t, m[1], values), `\"`, `"`)
			count := fmt.Sprintf(`count by (%s) (%s) and on () vector(1)`, m[2], selector)
			all = append(all, question{d.file + ": $" + v.Name, count})
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all = append(all, question{d.file + ": " + p.Title, withoutOffset(t, fill(t, target.Expr, values))})
			}
		}
	}
	for _, a := range alerts(t) {
		for _, s := range selectors(t, a.Expr) {
			all = append(all, question{a.Alert, s.String()})
		}
	}
	return all
}

var labelValues = regexp.MustCompile(`label_values\((.*), (\w+)\)`)

// withoutOffset removes `offset`, because this Prometheus has no data of yesterday.
func withoutOffset(t *testing.T, expr string) string {
	t.Helper()
	e := parse(t, expr)
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			s.OriginalOffset = 0
		}
		return nil
	})
	return e.String()
}

// prometheus is a running Prometheus.
type prometheus struct{ url string }

func startPrometheus(t *testing.T, service *service, envoys ...*testenv.EnvoyProxy) *prometheus {
	t.Helper()
	dir := t.TempDir()
	var admins []string
	for _, e := range envoys {
		admins = append(admins, `"`+e.Admin+`"`)
	}
	config := replaced(t, testenv.RepoFile(t, "deploy/observability/prometheus/prometheus.yml"),
		"scrape_interval: 15s", "scrape_interval: 1s", "evaluation_interval: 15s", "evaluation_interval: 1s",
		"rules/*.yaml", path(t, "deploy/observability/prometheus/rules/*.yaml"),
		"extauthz:6070", testenv.Loopback(service.DebugPort), `"envoy:9901"`, strings.Join(admins, ", "))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := testenv.Loopback(testenv.FreePort(t))
	p := &prometheus{url: "http://" + addr}
	testenv.Start(t, exec.Command(testenv.Binary(t, "prometheus", "PROMETHEUS_BIN"), "--config.file="+file,
		"--storage.tsdb.path="+dir, "--web.listen-address="+addr, "--log.level=warn"), func() error {
		return p.get("/api/v1/status/buildinfo", nil)
	})
	return p
}

// answers returns nil if an expression has a result.
func (p *prometheus) answers(expr string) error {
	var data struct {
		Result []json.RawMessage `json:"result"`
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return err
	}
	if len(data.Result) == 0 {
		return fmt.Errorf("no result of %s", expr)
	}
	return nil
}

// active returns nil if these alerts are pending or firing, and all rules can be evaluated.
func (p *prometheus) active(names ...string) error {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	if err := p.get("/api/v1/rules", &data); err != nil {
		return err
	}
	for _, group := range data.Groups {
		for _, r := range group.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
			if r.State != "inactive" {
				names = slices.DeleteFunc(names, func(name string) bool { return name == r.Name })
			}
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("inactive: %v", names)
	}
	return nil
}

// get reads the data of a response of the API.
func (p *prometheus) get(path string, data any) error {
	resp, err := http.Get(p.url + path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}
