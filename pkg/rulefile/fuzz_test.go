package rulefile

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// FuzzParse: no content may make Parse panic; each problem must show a place that exists in printable text; rules without errors
// hold only what the stores can count, policies only what the authorizer can ask for and send.
func FuzzParse(f *testing.F) {
	for _, dir := range []string{"problems", "sets"} {
		for _, path := range archives(f, dir) {
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
		rules, problems := Parse(files, Config{})
		for _, p := range problems {
			checkProblem(t, p)
		}
		again, _ := Parse(files, Config{})
		if diff := cmp.Diff(rules, again); diff != "" && !strings.Contains(diff, "NaN") {
			t.Errorf("parsing twice gives different rules:\n%s", diff)
		}
		if (rules.Domains == nil) != problems.HasErrors() {
			t.Errorf("%d domains with problems:\n%s", len(rules.Domains), problems)
		}
		for _, d := range rules.Domains {
			if d.Name == "" {
				t.Error("a domain without a name")
			}
			checkNodes(t, d.Descriptors)
		}
		for _, r := range ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{}).All() {
			for _, l := range r.Limits {
				if err := l.Check(); err != nil && !r.Unlimited {
					t.Errorf("limit %+v: %v", l, err)
				}
			}
		}
		for domain, p := range rules.Policies {
			if domain == "" {
				t.Error("a policy of no domain")
			}
			checkPolicy(t, p)
		}
	})
}

func checkProblem(t *testing.T, p Problem) {
	t.Helper()
	if p.Line > 0 && (p.Column < 1 || p.Column > utf8.RuneCountInString(p.Source)+1) {
		t.Errorf("column %d of a line with %d characters: %+v", p.Column, utf8.RuneCountInString(p.Source), p)
	}
	for _, r := range p.String() {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("%U in the text of a problem: %q", r, p.String())
		}
	}
	if strings.Contains(p.Message, "\n") {
		t.Errorf("a message of several lines: %q", p.Message)
	}
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
	for _, c := range p.Credentials {
		source := sourceOf(c)
		places := []string{source.Header, source.Scheme, source.Query, source.Cookie}
		if set := slices.DeleteFunc(places, func(s string) bool { return s == "" }); len(set) != 1 && c.MTLS == nil {
			t.Errorf("a credential in %d places: %+v", len(set), source)
		}
		if j := c.JWT; j != nil && (j.Issuer == "" || len(j.Audiences) == 0 || len(j.Algorithms) == 0 || (j.JWKSFile == "") == (j.JWKSURL == "") || j.Leeway > maxLeeway) {
			t.Errorf("a JWT that cannot be checked: %+v", j)
		}
		if m := c.MTLS; m != nil && len(m.Principals) == 0 {
			t.Error("certificates of nobody")
		}
	}
	for _, r := range []authz.Refusal{p.Absent, p.Invalid} {
		if !r.Pass && (r.Status < 400 || r.Status > 599) {
			t.Errorf("a refusal with status %d", r.Status)
		}
	}
	if p.Invalid.Pass {
		t.Error("invalid credentials pass")
	}
	for _, name := range []string{p.Headers.Owner, p.Headers.Plan, p.Headers.Method, p.Headers.KeyID} {
		if name != "" && (!isToken(name) || name != strings.ToLower(name)) {
			t.Errorf("identity header %q", name)
		}
	}
	for _, a := range p.Access {
		path := a.Path.Exact + a.Path.Prefix + a.Path.Template
		if a.Path != (authz.PathPattern{}) && (path[0] != '/' || !p.UnsafePaths && authz.UnsafePath(path)) {
			t.Errorf("rule of access for %q", path)
		}
	}
	for _, l := range p.Limits {
		if len(l.Actions) == 0 {
			t.Error("a limit without actions")
		}
		for _, a := range l.Actions {
			if entryOf(a).Key == "" {
				t.Errorf("an action without a key: %+v", a)
			}
		}
	}
}
