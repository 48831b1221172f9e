package file

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

// FuzzParse: no content makes Parse panic. Each problem shows an existing place, in printable text. Rules without
// errors have only limits that the stores can count, and policies that pass their own check.
func FuzzParse(f *testing.F) {
	for _, dir := range []string{"problems", "sets"} {
		for _, path := range cases.Archives(f, filepath.Join("testdata", dir, "*.txtar")) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				f.Fatal(err)
			}
			for _, file := range archive.Files {
				if strings.HasSuffix(file.Name, ".yaml") {
					f.Add(file.Data)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		files := []File{{Name: "f", Content: content}}
		set, problems := Parse(files, Config{})
		for _, p := range problems {
			cases.CheckProblem(t, p)
		}
		again, _ := Parse(files, Config{})
		diff := cmp.Diff(set, again, cmpopts.EquateComparable(netip.Prefix{}))
		if diff != "" && !strings.Contains(diff, "NaN") {
			t.Errorf("parsing twice gives different rules:\n%s", diff)
		}
		if (set.Domains == nil) != problems.HasErrors() {
			t.Errorf("%d domains with problems:\n%s", len(set.Domains), problems)
		}
		for _, d := range set.Domains {
			if d.Name == "" {
				t.Error("a domain without a name")
			}
			checkNodes(t, d.Descriptors)
		}
		for _, r := range ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{Networks: set.Networks}).All() {
			for _, l := range r.Limits {
				if err := l.Check(); err != nil && !r.Unlimited {
					t.Errorf("limit %+v: %v", l, err)
				}
			}
		}
		for domain, p := range set.Policies {
			if domain == "" {
				t.Error("a policy of no domain")
			}
			checkPolicy(t, p)
		}
	})
}

func checkNodes(t *testing.T, nodes []ratelimit.Node) {
	t.Helper()
	for _, n := range nodes {
		if n.Key == "" {
			t.Errorf("a node without a key: %+v", n)
		}
		checkNodes(t, n.Descriptors)
	}
}

func checkPolicy(t *testing.T, p *authz.Policy) {
	t.Helper()
	for _, m := range p.Check() {
		if !m.Warning {
			t.Errorf("a policy with a mistake: %+v", m)
		}
	}
	for _, name := range p.Headers.Names() {
		if name != strings.ToLower(name) || strings.ContainsAny(name, " :") {
			t.Errorf("identity header %q", name)
		}
	}
}
