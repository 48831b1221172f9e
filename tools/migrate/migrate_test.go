package migrate

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with the current results")

// TestLimitador reads each case of testdata/limitador: NAME.yaml is a limits file, NAME.want what it becomes. Lines
// `--descriptor KEYS` before the first file are options.
func TestLimitador(t *testing.T) {
	cases.Run(t, "testdata/limitador/*.txtar", *update, func(t *testing.T, comment string, f txtar.File) string {
		return shown(t, Limitador(strictyaml.File{Name: f.Name, Content: f.Data}, descriptorOptions(comment)))
	})
}

func descriptorOptions(comment string) (given [][]string) {
	for line := range strings.Lines(comment) {
		if keys, ok := strings.CutPrefix(strings.TrimSpace(line), "--descriptor "); ok {
			given = append(given, strings.Split(keys, ","))
		}
	}
	return given
}

// TestSpring reads each case of testdata/spring: NAME.yaml is an application.yml, NAME.want what it becomes. Lines
// `--key KEY` or `--key BEAN=KEY` before the first file are options.
func TestSpring(t *testing.T) {
	cases.Run(t, "testdata/spring/*.txtar", *update, func(t *testing.T, comment string, f txtar.File) string {
		return shown(t, Spring(strictyaml.File{Name: f.Name, Content: f.Data}, keyOptions(t, comment)))
	})
}

func keyOptions(t *testing.T, comment string) SpringOptions {
	o := SpringOptions{Domain: "gateway", Keys: map[string]SpringKey{}}
	for line := range strings.Lines(comment) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "--key ")
		if !ok {
			continue
		}
		bean, kind, named := strings.Cut(text, "=")
		if !named {
			bean, kind = "", text
		}
		key, err := ParseSpringKey(kind)
		if err != nil {
			t.Fatal(err)
		}
		o.Keys[bean] = key
	}
	return o
}

// shown returns everything that was converted as text.
func shown(t *testing.T, c *Converted) string {
	var b strings.Builder
	if len(c.Problems) > 0 {
		b.WriteString(c.Problems.Error() + "\n")
	}
	for _, p := range c.Problems {
		cases.CheckProblem(t, p)
		for _, f := range c.Files {
			if p.File == f.Name && !p.Warning {
				t.Errorf("the rule file has a mistake of its own: %s", p)
			}
		}
	}
	for _, f := range c.Files {
		fmt.Fprintf(&b, "[%s]\n%s", f.Name, f.Content)
	}
	for _, s := range c.Settings {
		fmt.Fprintf(&b, "[setting] %s\n", s)
	}
	if c.Routes != "" {
		fmt.Fprintf(&b, "[routes]\n%s", c.Routes)
	}
	for _, n := range c.Notes {
		fmt.Fprintf(&b, "[note] %s\n", n)
	}
	return b.String()
}

// TestLimitadorPage converts the limits file of docs/migration into the rule file of that page.
func TestLimitadorPage(t *testing.T) {
	text := testenv.RepoFile(t, "docs/migration/from-limitador.md")
	source := strictyaml.File{Name: "limits.yaml", Content: []byte(block(t, text, "yml", "namespace:"))}
	c := Limitador(source, [][]string{{"req.method", "user_id"}, {"generic_key"}})
	if len(c.Files) != 1 || len(c.Problems) > 0 {
		t.Fatal(c.Problems)
	}
	if diff := cmp.Diff(block(t, text, "yaml", "domain:"), string(c.Files[0].Content)); diff != "" {
		t.Errorf("-the page +converted:\n%s", diff)
	}
}

// block returns the first fenced block of a language that has a text.
func block(t *testing.T, page, language, has string) string {
	t.Helper()
	for rest := page; ; {
		_, after, ok := strings.Cut(rest, "\n```"+language+"\n")
		content, rest2, closed := strings.Cut(after, "\n```")
		if !ok || !closed {
			t.Fatalf("no block of %s with %q", language, has)
		}
		if strings.Contains(content, has) {
			return content + "\n"
		}
		rest = rest2
	}
}

// domains returns the rules of the files, nil if they have errors.
func domains(c *Converted) []ratelimit.Domain {
	set, _ := file.Parse(c.Files, file.Config{})
	return set.Domains
}
