package file

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/rules"
)

// ruleFile returns a small rule file with a domain.
func ruleFile(domain string) string {
	return "domain: " + domain + "\ndescriptors:\n  - key: a\n    rate_limit: {unit: minute, requests_per_unit: 1}\n"
}

// newDirectory makes a directory with files, by name.
func newDirectory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLoadReadsTheFilesOfADirectory(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		cfg   Config
		want  string // domains in order
		warns string // files with a warning
	}{
		{
			name:  "files are sorted by name and may have any extension",
			files: map[string]string{"b.yaml": "two", "a.txt": "one", "c": "three"},
			want:  "one two three",
		},
		{name: "dotfiles are read", files: map[string]string{".hidden": "one", "a.yaml": "two"}, want: "one two"},
		{
			name:  "IgnoreDotfiles leaves out dotfiles",
			files: map[string]string{".hidden": "one", "a.yaml": "two"},
			cfg:   Config{IgnoreDotfiles: true},
			want:  "two",
		},
		{
			name:  "names with two dots are left out",
			files: map[string]string{"..data": "one", "a.yaml": "two"},
			want:  "two",
		},
		{
			name:  "backups and lock files of editors are left out",
			files: map[string]string{"a.yaml": "one", "a.yaml~": "one", ".a.yaml.swp": "one", "#a.yaml#": "one"},
			want:  "one", warns: "#a.yaml# .a.yaml.swp a.yaml~",
		},
		{
			name:  "LeaveOutNotes leaves out files that are no YAML files by name and set no domain",
			files: map[string]string{"a.yaml": "one", "b.conf": "two", "NOTES.txt": "", "README.md": ""},
			cfg:   Config{LeaveOutNotes: true},
			want:  "one two", warns: "NOTES.txt README.md",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, domain := range c.files {
				content := ruleFile(domain)
				if domain == "" {
					content = "Ask the platform team before you change a domain: the limits are shared.\n"
				}
				write(t, filepath.Join(dir, name), content)
			}
			set, problems := NewWatcher(dir, c.cfg).Load(t.Context())
			if problems.HasErrors() {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(c.want, domainNames(set)); diff != "" {
				t.Error(diff)
			}
			var warned []string
			for _, p := range problems {
				warned = append(warned, filepath.Base(p.File))
			}
			if diff := cmp.Diff(c.warns, strings.Join(warned, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func domainNames(set rules.Set) string {
	var names []string
	for _, d := range set.Domains {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

func TestLoadFollowsTheLinksOfAConfigMap(t *testing.T) {
	dir := t.TempDir()
	swapConfigMap(t, dir, "..1", map[string]string{"a.yaml": ruleFile("one"), "b.yaml": ruleFile("two")})
	set, problems := NewWatcher(dir, Config{IgnoreDotfiles: true}).Load(t.Context())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if diff := cmp.Diff("one two", domainNames(set)); diff != "" {
		t.Error(diff)
	}
}

func TestLoadReportsUnreadableFiles(t *testing.T) {
	empty := t.TempDir()
	onlyDots := newDirectory(t, map[string]string{"..data": ruleFile("one")})
	comments := strings.Repeat("# nothing\n", int(ruleKind().MaxSize)/10+1)
	large := newDirectory(t, map[string]string{"a.yaml": comments})
	aFile := filepath.Join(newDirectory(t, map[string]string{"a": ""}), "a")
	dangling := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dangling, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	mixed := newDirectory(t, map[string]string{"z.yaml": ruleFile("one")})
	if err := os.Mkdir(filepath.Join(mixed, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(mixed, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	const noFiles = "DIR: error: no rule files in this directory\n" +
		"      = add a file that begins with `domain: <name>`\n"
	for _, c := range []struct{ dir, want string }{
		{filepath.Join(empty, "none"), "DIR: error: the rule directory does not exist\n" +
			"      = create it, or mount it; rules are read from RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY\n"},
		{empty, noFiles},
		{onlyDots, noFiles},
		{large, "DIR/a.yaml: error: larger than 4 MB\n" +
			"      = is this a rule file? If so, split it and set MERGE_DOMAIN_CONFIG=true\n"},
		{aFile, "DIR: error: read rule directory: not a directory\n"},
		{dangling, "DIR/a.yaml: error: read rule file: no such file or directory\n"},
		{mixed, "DIR/pipe: warning: left out: not a regular file\n" +
			"DIR/sub: warning: left out: rules are read from one directory, not from its subdirectories\n"},
	} {
		set, problems := NewWatcher(c.dir, Config{}).Load(t.Context())
		got := ""
		for _, p := range problems {
			got += strings.ReplaceAll(p.String(), c.dir, "DIR")
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("want (-) and got (+):\n%s", diff)
		}
		if set.Generation == "" || problems.HasErrors() != (set.Domains == nil) {
			t.Errorf("%s: rules %+v", c.dir, set)
		}
	}
}

func TestGenerationIdentifiesTheContents(t *testing.T) {
	a := newDirectory(t, map[string]string{"a.yaml": ruleFile("one"), "b.yaml": ruleFile("two")})
	b := newDirectory(t, map[string]string{"a.yaml": ruleFile("one"), "b.yaml": ruleFile("two"), "b.yaml~": ""})
	c := newDirectory(t, map[string]string{"a.yaml": ruleFile("one"), "b.yaml": ruleFile("three")})
	d := newDirectory(t, map[string]string{"a.yaml": ruleFile("one"), "c.yaml": ruleFile("two")})
	generation := func(dir string) string {
		set, _ := NewWatcher(dir, Config{}).Load(t.Context())
		return set.Generation
	}
	if generation(a) != generation(b) {
		t.Errorf("the same files in two places: %s and %s", generation(a), generation(b))
	}
	for _, other := range []string{c, d, filepath.Join(a, "none")} {
		if generation(a) == generation(other) {
			t.Errorf("different files have the same generation %s", generation(a))
		}
	}
}
