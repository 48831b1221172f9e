package file

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with the current results")

// TestProblems reads each case of testdata/problems: NAME.yaml is a rule file, NAME.want its problems. Answers have the
// headers of the default settings.
func TestProblems(t *testing.T) {
	cases.Run(t, "testdata/problems/*.txtar", *update, func(_ *testing.T, _ string, f txtar.File) string {
		cfg := Config{CheckOptions: ratelimit.CheckOptions{Sent: []string{"ratelimit", "ratelimit-policy", "retry-after"}}}
		return explain([]File{{Name: f.Name, Content: f.Data}}, cfg, ratelimit.RulesOptions{})
	})
}

// TestSets reads each archive of testdata/sets as one set of files. Lines NAME=value before the first file are
// settings.
func TestSets(t *testing.T) {
	for _, path := range cases.Archives(t, "testdata/sets/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var files []File
			for _, f := range archive.Files {
				if f.Name != "want" {
					files = append(files, File{Name: f.Name, Content: f.Data})
				}
			}
			cfg, options := settings(t, archive.Comment)
			got := explain(files, cfg, options)
			if *update {
				cases.Set(archive, files[len(files)-1].Name, "want", got)
				cases.Write(t, path, archive)
				return
			}
			cases.Check(t, archive, "want", archive.Comment, got)
		})
	}
}

// explain returns the problems of a set of files, and the rules if there are no errors.
func explain(files []File, cfg Config, o ratelimit.RulesOptions) string {
	set, problems := Parse(files, cfg)
	var b strings.Builder
	if len(problems) > 0 {
		b.WriteString(problems.Error() + "\n")
	}
	if !problems.HasErrors() {
		live := rules.NewLive(rules.Options{Limits: o})
		live.Activate(set, nil)
		b.WriteString("rules:\n" + rules.Dump(live.Active()))
	}
	return b.String()
}

func settings(t *testing.T, comment []byte) (cfg Config, o ratelimit.RulesOptions) {
	for line := range strings.Lines(string(comment)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue // a remark
		}
		switch name {
		case "RULES_REQUIRE_END":
			cfg.RequireEnd = value == "true"
		case "MERGE_DOMAIN_CONFIG":
			cfg.MergeDomains = value == "true"
		case "DEFAULT_ALGORITHM":
			if err := cfg.DefaultAlgorithm.UnmarshalText([]byte(value)); err != nil {
				t.Fatal(err)
			}
			o.DefaultAlgorithm = cfg.DefaultAlgorithm
		case "STORE_ERROR_POLICY":
			if err := o.DefaultPolicy.UnmarshalText([]byte(value)); err != nil {
				t.Fatal(err)
			}
			cfg.DefaultPolicy = o.DefaultPolicy
		case "USE_CALENDAR_MONTH_RATE_LIMIT":
			cfg.CalendarMonths, o.CalendarMonths = value == "true", value == "true"
		case "COMPATIBILITY":
			cfg.Strict = value == "strict"
		default:
			t.Fatalf("no setting %q", name)
		}
	}
	return cfg, o
}
