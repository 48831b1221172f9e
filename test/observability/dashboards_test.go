package observability

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/model/labels"
)

// dashboard has the fields of a dashboard that the tests check.
type dashboard struct {
	file       string
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
	Links  []struct {
		URL string `json:"url"`
	} `json:"links"`
}

type variable struct {
	Name, Type string
	Datasource datasource
	Multi      bool
	AllValue   string
	Query      json.RawMessage
}

type datasource struct{ Type, UID string }

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               datasource
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Thresholds json.RawMessage
		}
	}
	Targets []struct{ RefID, Expr string }
}

// chosenSource is the datasource that the user selects at the top. Everything in a dashboard must use it.
var chosenSource = datasource{Type: "prometheus", UID: "${datasource}"}

func dashboards(t *testing.T) (all []dashboard) {
	t.Helper()
	for _, file := range glob(t, "deploy/observability/grafana/dashboards/*.json") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := dashboard{file: filepath.Base(file)}
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", d.file, err)
		}
		all = append(all, d)
	}
	return all
}

// TestDashboardFiles checks the files with Grafana's schema, including the options of each panel. It also checks the
// formatting of the files, so that a diff shows only real changes.
func TestDashboardFiles(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for _, file := range glob(t, "deploy/observability/grafana/dashboards/*.json") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d grafana.Dashboard
		if err := d.UnmarshalJSONStrict(content); err != nil {
			t.Errorf("%s is not a valid dashboard:\n%v", file, err)
		}
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		var form bytes.Buffer
		if err := json.Indent(&form, content, "", "  "); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if strings.TrimSpace(form.String()) != strings.TrimSpace(string(content)) {
			t.Errorf("%s: format it with `python3 -m json.tool --indent 2 --no-ensure-ascii`", file)
		}
	}
}

func TestDashboards(t *testing.T) {
	uids := map[string]bool{}
	all := dashboards(t)
	for _, d := range all {
		if uids[d.UID] || !strings.HasPrefix(d.UID, "extauthz-") {
			t.Errorf("%s: uid %q, want a unique extauthz-..., which users' links contain", d.file, d.UID)
		}
		uids[d.UID] = true
	}
	for _, d := range all {
		t.Run(d.file, func(t *testing.T) {
			for _, link := range d.Links {
				address, _, _ := strings.Cut(link.URL, "?")
				if uid, ok := strings.CutPrefix(address, "/d/"); !ok || !uids[uid] {
					t.Errorf("a link to %s, which is not a dashboard of this project", link.URL)
				}
				for _, m := range passedOn.FindAllStringSubmatch(link.URL, -1) {
					if !slices.ContainsFunc(d.Templating.List, func(v variable) bool { return v.Name == m[1] }) {
						t.Errorf("a link passes %s on, but there is no variable of that name", m[0])
					}
				}
			}
			for _, v := range d.Templating.List {
				if v.Type == "query" && v.Datasource != chosenSource {
					t.Errorf("the variable %s queries %+v, want %+v", v.Name, v.Datasource, chosenSource)
				}
				if v.Multi && v.AllValue != ".*" {
					t.Errorf("the variable %s: allValue is %q, want .*, which also matches series without the label", v.Name,
						v.AllValue)
				}
			}
			d.checkPanels(t)
		})
	}
}

func (d *dashboard) checkPanels(t *testing.T) {
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("panel %q: id %d, want a unique id above 0", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Title == "" {
			t.Errorf("panel %d has no title", p.ID)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("panel %q overlaps %q or the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource != chosenSource {
			t.Errorf("panel %q: description %q, unit %q, datasource %+v; want all three, and the selected datasource",
				p.Title, p.Description, p.FieldConfig.Defaults.Unit, p.Datasource)
		}
		if (p.Type == "stat" || p.Type == "bargauge") && p.FieldConfig.Defaults.Thresholds == nil {
			t.Errorf("panel %q: no thresholds; by default Grafana shows values above 80 in red", p.Title)
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			d.checkExpr(t, p.Title, target.Expr)
		}
	}
}

// checkExpr checks that the selectors of an expression use the values that the user selects at the top.
func (d *dashboard) checkExpr(t *testing.T, title, expr string) {
	t.Helper()
	const chosen = "chosen_"
	values := map[string]string{"__rate_interval": "1m"}
	kinds := map[string]labels.MatchType{}
	for _, v := range d.Templating.List {
		values[v.Name] = chosen + v.Name
		kinds[v.Name] = labels.MatchEqual
		if v.Multi {
			kinds[v.Name] = labels.MatchRegexp
		}
	}
	for _, s := range selectors(t, fill(t, expr, values)) {
		want := []string{"namespace", "job", "instance"}
		variable := func(label string) string { return label }
		if strings.HasPrefix(s.Name, "envoy_") { // Envoy is another job, and in Kubernetes often in another namespace
			want = want[:1]
			variable = func(label string) string { return "envoy_" + label }
		}
		if strings.HasPrefix(s.Name, "extauthz_ratelimit_decisions") || strings.HasPrefix(s.Name, "extauthz_rule_") {
			want = append(want, "domain", "rule")
		}
		for _, m := range s.LabelMatchers {
			kind, isVariable := kinds[variable(m.Name)]
			if (isVariable || slices.Contains(want, m.Name)) && (m.Value != chosen+variable(m.Name) || m.Type != kind) {
				t.Errorf("panel %q: %s in %s, want the value of $%s, with %s", title, m, expr, variable(m.Name), kind)
			}
			want = slices.DeleteFunc(want, func(name string) bool { return name == m.Name })
		}
		if len(want) > 0 {
			t.Errorf("panel %q: %s does not use the variables %v", title, expr, want)
		}
	}
	if strings.Contains(expr, "rate(") && !strings.Contains(expr, "[$__rate_interval]") {
		t.Errorf("panel %q: %s: want [$__rate_interval], which depends on the time range and the scrape interval", title,
			expr)
	}
}

// fill replaces the variables of a dashboard by values. The test fails if the dashboard lacks a variable.
func fill(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	return reference.ReplaceAllStringFunc(text, func(s string) string {
		value, ok := values[s[1:]]
		if !ok {
			t.Errorf("the dashboard has no variable %s, which %s uses", s, text)
		}
		return value
	})
}

// passedOn matches variables whose values a link passes on.
var passedOn = regexp.MustCompile(`\$\{(\w+):queryparam\}`)

var reference = regexp.MustCompile(`\$\w+`)
