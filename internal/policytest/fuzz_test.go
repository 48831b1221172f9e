package policytest

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/settings"
)

// FuzzParse reads any text. Each problem has a place in the file and a message. A file without problems runs, and its
// report can be read.
func FuzzParse(f *testing.F) {
	archives, err := filepath.Glob("../../cmd/extauthz/testdata/test/*.txtar")
	if err != nil || len(archives) == 0 {
		f.Fatal("no archives", err)
	}
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if strings.HasSuffix(file.Name, ".test") {
				f.Add(string(file.Data))
			}
		}
	}
	f.Add("rules r\nkey k owner=o expires=90d limit=1/day\ntest t\n" +
		"+36500d limit shop 'tenant=a' x10000 hits 4294967295 -> remaining.a=*")
	f.Add("rules r\ntest t\nrequest x5 -> allowed\nlimit x5 -> allowed\ncheck GET x5 -> 200\n0s\ntest\n'\n->")
	f.Add("rules r\ntest t\ncheck \xff \"/\" a:b -> no no upstream upstream:x 200")
	rules := filepath.Join(f.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: minute, "+
		"requests_per_unit: 5}}]\nauthz: {credentials: [{api_key: {header: x-api-key}}]}\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	s, err := settings.Read()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, problems := Parse("t.test", []byte(text))
		lines := strings.Split(text, "\n")
		for _, p := range problems {
			if p.Line > len(lines) || p.Line > 0 && p.Column > len([]rune(lines[p.Line-1]))+1 || p.Message == "" ||
				p.String() == "" {
				t.Fatalf("%+v", p)
			}
		}
		if len(problems) > maxProblems+5 {
			t.Errorf("%d problems", len(problems))
		}
		if problems.HasErrors() {
			return
		}
		file.Rules, file.Requests = []string{rules}, nil
		suite := &Suite{Name: "t.test"}
		report := &Report{Suites: []*Suite{suite}, byRule: map[Rule]*Rule{}}
		requests := 0
		for i := range file.Tests {
			test := &file.Tests[i]
			for j := range test.Steps {
				step := &test.Steps[j]
				if step.At < 0 || step.At > maxTime || step.Times < 1 || step.Times > maxTimes {
					t.Fatalf("%+v", step)
				}
				step.Times = min(step.Times, 3)
				if requests++; requests > 20 {
					return
				}
			}
			if err := report.test(t.Context(), s, file, test, suite); err != nil {
				t.Fatal(err)
			}
		}
		report.WriteText(io.Discard, func(text string, _ int) string { return text })
		out, err := xml.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(out, new(Report)); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}
