package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/extauthz/extauthz/internal/command"
)

const (
	goodRules = "domain: good\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
	badRules  = "domain: bad\ndescriptors:\n  - key: k\n    rate_limt: {unit: hour, requests_per_unit: 1}\n"
)

// TestCheckPaths checks directories, files and standard input together. Each mistake names its file.
func TestCheckPaths(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for path, content := range map[string]string{good: goodRules, bad: badRules} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args, stdin string
		code        int
		want        string
	}{
		{good, "", 0, "ok: 1 domain, 1 limit"},
		{"-", goodRules, 0, "ok: 1 domain, 1 limit"},
		{"- " + good, strings.Replace(goodRules, "good", "other", 1), 0, "ok: 2 domains, 2 limits"},
		{"- " + good, goodRules, 1, "domain"}, // twice
		{bad, "", 1, bad + ":4:5: error: "},
		{"-", badRules, 1, "standard input:4:5: error: "},
		{good + " -", badRules, 1, "standard input:4:5: error: "},
		{dir, "", 1, bad + ":4:5: error: "},
		{"-", "", 1, "standard input: error: "},
		{"/dev/null", "", 1, "/dev/null: error: left out: not a regular file"},
	} {
		var out bytes.Buffer
		if code := run(t, nil, "check "+c.args, c.stdin, &out, &out); code != c.code ||
			!strings.Contains(out.String(), c.want) {
			t.Errorf("check %s: exit code %d, want %d and %q in\n%s", c.args, code, c.code, c.want, &out)
		}
	}
}

func TestCheckJSON(t *testing.T) {
	for _, c := range []struct {
		args, stdin string
		code        int
		want        checked
	}{
		{"-", goodRules, 0, checked{OK: true, Domains: 1, Limits: 1, Problems: []command.ProblemJSON{}}},
		{"-", badRules, 1, checked{Problems: []command.ProblemJSON{{
			File: "standard input", Line: 4, Column: 5, Length: 9, Severity: "error",
			Message: "unknown key `rate_limt` in a descriptor", Hints: []string{"did you mean `rate_limit`?"},
		}}}},
		{"--envoy ../../envoy/envoy.yaml ../../internal/service/sample", "", 0, checked{
			OK: true, Domains: 1, Limits: 8, Envoy: []checkedEnvoy{{File: "../../envoy/envoy.yaml", Managers: 1}},
			Problems: []command.ProblemJSON{},
		}},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t, nil, "check -o json "+c.args, c.stdin, &stdout, &stderr); code != c.code || stderr.Len() > 0 {
			t.Errorf("check %s: exit code %d, want %d, and nothing in\n%s", c.args, code, c.code, &stderr)
		}
		var got checked
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Generation == "" {
			t.Error("no generation")
		}
		got.Generation = ""
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(checked{}, checkedEnvoy{})); diff != "" {
			t.Errorf("check %s (-want +got):\n%s", c.args, diff)
		}
	}
}

// TestCheckSARIF validates SARIF output. testdata/sarif.schema.json has the parts of the SARIF 2.1.0 schema that
// extauthz check fills in.
func TestCheckSARIF(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("testdata/sarif.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	empty, bad := t.TempDir(), filepath.Join(t.TempDir(), "a rule.yaml")
	if err := os.WriteFile(bad, []byte(badRules), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, stdin string
		code        int
		results     string // level, URI and region
	}{
		{"-", goodRules, 0, ""},
		{"-", badRules, 1, "error standard%20input &{4 5 14}"},
		{bad, "", 1, "error file://" + strings.ReplaceAll(bad, " ", "%20") + " &{4 5 14}"},
		{empty, "", 1, "error file://" + empty + " <nil>"},
	} {
		var stdout, stderr bytes.Buffer
		p := &program{command.Program{Stdin: strings.NewReader(c.stdin), Stdout: &stdout, Stderr: &stderr}}
		if code := p.run([]string{"check", "-o", "sarif", c.path}); code != c.code || stderr.Len() > 0 {
			t.Errorf("check %s: exit code %d, want %d, and nothing in\n%s", c.path, code, c.code, &stderr)
		}
		var log struct {
			Runs []struct {
				Results []struct {
					Level     string
					Locations []struct {
						PhysicalLocation struct {
							ArtifactLocation struct{ URI string }
							Region           *struct{ StartLine, StartColumn, EndColumn int }
						}
					}
				}
			}
		}
		if err := json.Unmarshal(stdout.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		var results []string
		for _, r := range log.Runs[0].Results {
			at := r.Locations[0].PhysicalLocation
			results = append(results, fmt.Sprint(r.Level, " ", at.ArtifactLocation.URI, " ", at.Region))
		}
		if got := strings.Join(results, "\n"); got != c.results {
			t.Errorf("check %s: %s\nwant %s", c.path, got, c.results)
		}
		instance, err := jsonschema.UnmarshalJSON(&stdout)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(instance); err != nil {
			t.Errorf("check %s: %v", c.path, err)
		}
	}
}
