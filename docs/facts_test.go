package docs

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/test/testenv"
)

// fact is a figure, a bound, a default or a time limit that one page states.
type fact struct {
	Fact string // what it is

	// Pattern matches the words that state it, with any number. Its group 1 is the value.
	Pattern string

	Page string   // the page that states it
	Also []string // pages that may repeat it, in the same words

	// File has group 1 as a constant or as a measured figure. It may be empty.
	File string
}

// TestFacts checks that each fact of testdata/facts.yaml is stated on its page, on no other page, and as its file
// has it. It reads sentences and tables, and ignores code.
func TestFacts(t *testing.T) {
	var facts []fact
	list := testenv.RepoFile(t, "docs/testdata/facts.yaml")
	if err := yaml.Load([]byte(list), &facts, yaml.WithKnownFields()); err != nil {
		t.Fatal(err)
	}
	pages := prose(t)
	for _, f := range facts {
		for _, problem := range f.check(pages, func(name string) string { return testenv.RepoFile(t, name) }) {
			t.Errorf("%s: %s", f.Fact, problem)
		}
	}
}

// check returns what is wrong with a fact: pages has the prose by the name of the page, read returns a file.
func (f fact) check(pages map[string]string, read func(name string) string) (problems []string) {
	pattern, err := regexp.Compile(f.Pattern)
	if err != nil {
		return []string{err.Error()}
	}
	stated := pattern.FindAllStringSubmatch(pages[f.Page], -1)
	if len(stated) == 0 {
		problems = append(problems, f.Page+" does not state it")
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, m := range pattern.FindAllStringSubmatch(pages[page], -1) {
			switch {
			case page == f.Page:
			case !slices.Contains(f.Also, page):
				problems = append(problems, page+" repeats it; link to "+f.Page+" instead: "+m[0])
			case !slices.ContainsFunc(stated, func(s []string) bool { return slices.Equal(s, m) }):
				problems = append(problems, page+" differs from "+f.Page+": "+m[0])
			}
		}
	}
	if f.File == "" {
		return problems
	}
	for _, m := range stated {
		if len(m) < 2 || !strings.Contains(read(f.File), m[1]) {
			problems = append(problems, f.Page+" differs from "+f.File+": "+m[0])
		}
	}
	return problems
}

// prose returns the text of each page that users read, without code blocks and without line breaks in paragraphs.
// CHANGELOG.md tells what changed, and docs/design.md why: both may name a figure that a page states.
func prose(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	root := os.DirFS(testenv.RepoRoot(t))
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/*/*/*.md"} {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if base := path.Base(name); base == "CHANGELOG.md" || base == "design.md" {
				continue
			}
			text, err := fs.ReadFile(root, name)
			if err != nil {
				t.Fatal(err)
			}
			pages[name] = withoutCode(string(text))
		}
	}
	return pages
}

// withoutCode returns the sentences and tables of a page in one line.
func withoutCode(text string) string {
	var lines []string
	for _, line := range outsideCode(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, " ")
}

// TestRepeatedFactsAreFound tests check, on which TestFacts relies.
func TestRepeatedFactsAreFound(t *testing.T) {
	const page, other = "docs/sizing.md", "README.md"
	f := fact{Pattern: `(\d+) bytes per bucket`, Page: page, File: "size.txt"}
	repeated := f
	repeated.Also = []string{other}
	for _, c := range []struct {
		name     string
		fact     fact
		page     string
		other    string
		file     string
		problems int
	}{
		{"stated once", f, "It takes 181\nbytes per bucket.", "See there.", "181", 0},
		{"not stated", f, "It takes memory.", "See there.", "181", 1},
		{"only in code", f, "```\n181 bytes per bucket\n```", "See there.", "181", 1},
		{"on a second page", f, "181 bytes per bucket", "160 bytes per bucket", "181", 1},
		{"on a second page that may", repeated, "181 bytes per bucket", "181 bytes per bucket", "181", 0},
		{"different on a second page that may", repeated, "181 bytes per bucket", "160 bytes per bucket", "181", 1},
		{"not as measured", f, "181 bytes per bucket", "", "190", 1},
		{"no pattern", fact{Pattern: "(", Page: page}, "", "", "", 1},
	} {
		pages := map[string]string{page: withoutCode(c.page), other: withoutCode(c.other)}
		problems := c.fact.check(pages, func(string) string { return c.file })
		if len(problems) != c.problems {
			t.Errorf("%s: got %q, want %d problems", c.name, problems, c.problems)
		}
	}
}
