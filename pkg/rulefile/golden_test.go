package rulefile

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with what the code says now")

// TestProblems reads each case of testdata/problems/*.txtar: NAME.yaml is a rule file, NAME.want what is said about it.
func TestProblems(t *testing.T) {
	for _, path := range archives(t, "problems") {
		goldenCases(t, path, func(f File) string { return explain([]File{f}, Config{}, ratelimit.RulesOptions{}) })
	}
}

// goldenCases calls what with each NAME.yaml of an archive and compares what it says with NAME.want.
func goldenCases(t *testing.T, path string, what func(File) string) {
	archive := readArchive(t, path)
	for _, f := range slices.Clone(archive.Files) {
		name, isCase := strings.CutSuffix(f.Name, ".yaml")
		if !isCase {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+name, func(t *testing.T) {
			got := what(File{Name: f.Name, Content: f.Data})
			if *update {
				setFile(archive, f.Name, name+".want", got)
				return
			}
			checkGolden(t, archive, name+".want", f.Data, got)
		})
	}
	writeArchive(t, path, archive)
}

// TestSets reads each archive of testdata/sets as one set of files. Lines NAME=value before the first file are settings.
func TestSets(t *testing.T) {
	for _, path := range archives(t, "sets") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive := readArchive(t, path)
			var files []File
			for _, f := range archive.Files {
				if f.Name != "want" {
					files = append(files, File{Name: f.Name, Content: f.Data})
				}
			}
			cfg, options := settings(t, archive.Comment)
			got := explain(files, cfg, options)
			if *update {
				setFile(archive, files[len(files)-1].Name, "want", got)
				writeArchive(t, path, archive)
				return
			}
			checkGolden(t, archive, "want", archive.Comment, got)
		})
	}
}

// explain is all that there is to see of a set of files: the problems, and the rules when there are no errors.
func explain(files []File, cfg Config, o ratelimit.RulesOptions) string {
	rules, problems := Parse(files, cfg)
	var b strings.Builder
	if len(problems) > 0 {
		b.WriteString(problems.Error() + "\n")
	}
	if !problems.HasErrors() {
		b.WriteString("rules:\n" + Dump(rules, o))
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
		default:
			t.Fatalf("no setting %q", name)
		}
	}
	return cfg, o
}

func archives(t testing.TB, dir string) []string {
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives in testdata/%s: %v", dir, err)
	}
	return paths
}

func readArchive(t *testing.T, path string) *txtar.Archive {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func writeArchive(t *testing.T, path string, archive *txtar.Archive) {
	if !*update {
		return
	}
	if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// setFile replaces a file of the archive, or puts it behind another one.
func setFile(archive *txtar.Archive, after, name, content string) {
	index := func(name string) int {
		return slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == name })
	}
	file := txtar.File{Name: name, Data: []byte(content)}
	if i := index(name); i >= 0 {
		archive.Files[i] = file
		return
	}
	archive.Files = slices.Insert(archive.Files, index(after)+1, file)
}

func checkGolden(t *testing.T, archive *txtar.Archive, name string, input []byte, got string) {
	t.Helper()
	for _, f := range archive.Files {
		if f.Name == name {
			if diff := cmp.Diff(string(f.Data), got); diff != "" {
				t.Errorf("%s\nwant (-) and got (+):\n%s", input, diff)
			}
			return
		}
	}
	t.Errorf("no %s: run the test with -update and read what it writes", name)
}
