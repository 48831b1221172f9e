// Package docs tests the documentation: links have targets, and tables and graphs agree with the code.
package docs

import (
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestLinks checks every relative link and picture in every Markdown file: the file exists, and so does the heading
// if the link has an anchor. The test ignores links to other sites, so it needs no network.
func TestLinks(t *testing.T) {
	pages := map[string]page{}
	root := os.DirFS(testenv.RepoRoot(t))
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && (name == "dist" || name != "." && strings.HasPrefix(entry.Name(), ".")) {
			return fs.SkipDir // build results and tools
		}
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		text, err := fs.ReadFile(root, name)
		pages[name] = readPage(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 5 {
		t.Fatalf("found only %d Markdown files in %s", len(pages), root)
	}
	for name, problems := range follow(root, pages) {
		for _, p := range problems {
			t.Errorf("%s:%s", name, p)
		}
	}
}

// follow returns the broken links of each page.
func follow(root fs.FS, pages map[string]page) map[string][]string {
	problems := map[string][]string{}
	for name, p := range pages {
		for _, l := range p.links {
			file, anchor, _ := strings.Cut(l.target, "#")
			target := path.Join(path.Dir(name), file)
			if file == "" {
				target = name
			}
			problem := ""
			if _, err := fs.Stat(root, target); err != nil {
				problem = fmt.Sprintf("there is no file %s", target)
			} else if to, ok := pages[target]; ok && anchor != "" && !slices.Contains(to.anchors, anchor) {
				problem = fmt.Sprintf("%s has no heading of this name, only %q", target, to.anchors)
			}
			if problem != "" {
				problems[name] = append(problems[name], fmt.Sprintf("%d: %s: %s", l.line, l.target, problem))
			}
		}
	}
	return problems
}

// page has the link targets within a Markdown file, and the links in it.
type page struct {
	anchors []string // names of the headings, as GitHub derives them
	links   []link
}

type link struct {
	line   int
	target string // a path relative to the page, "#", and an anchor; the path or the anchor may be missing
}

var (
	fence   = regexp.MustCompile("^\\s*(```|~~~)")
	code    = regexp.MustCompile("`[^`]*`")
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*$`)
	named   = regexp.MustCompile(`<[^>]*\bid="([^"]+)"`)
	links   = []*regexp.Regexp{
		regexp.MustCompile(`\]\(\s*([^()\s]+)[^()]*\)`),       // [text](target "title"), and pictures
		regexp.MustCompile(`^ {0,3}\[[^\]]+\]:\s+(\S+)`),      // [name]: target
		regexp.MustCompile(`<[^>]*\b(?:src|href)="([^"]+)"`),  // HTML
		regexp.MustCompile(`<[^>]*\bsrcset="([^"\s]+)[^"]*"`), // of a <picture>
	}
	elsewhere = regexp.MustCompile(`^([a-z][a-z0-9+.-]*:|//)`) // https:, mailto:
)

// readPage reads Markdown. It ignores links and headings in code.
func readPage(text string) page {
	var p page
	for n, line := range outsideCode(text) {
		if h := heading.FindStringSubmatch(line); h != nil {
			p.anchors = append(p.anchors, anchor(h[1], p.anchors))
		}
		line = code.ReplaceAllString(line, "")
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			p.anchors = append(p.anchors, m[1])
		}
		for _, pattern := range links {
			for _, m := range pattern.FindAllStringSubmatch(line, -1) {
				if !elsewhere.MatchString(m[1]) {
					p.links = append(p.links, link{n, m[1]})
				}
			}
		}
	}
	return p
}

// outsideCode returns the lines of Markdown that are not in a block of code, by their numbers.
func outsideCode(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		fenced, n := false, 0
		for line := range strings.Lines(text) {
			n++
			if fence.MatchString(line) {
				fenced = !fenced
			} else if !fenced && !yield(n, line) {
				return
			}
		}
	}
}

// anchor returns the name of a heading: its text in lower case. Letters, digits, - and _ stay, spaces become -, and
// other characters are removed. The second heading with the same name is name-1.
func anchor(title string, taken []string) string {
	title = links[0].ReplaceAllString(title, "]") // keeps the text of a link
	name := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, title)
	unique := name
	for i := 1; slices.Contains(taken, unique); i++ {
		unique = fmt.Sprintf("%s-%d", name, i)
	}
	return unique
}

// TestDeadLinksAreFound tests follow and readPage, on which TestLinks relies.
func TestDeadLinksAreFound(t *testing.T) {
	const b = "# The `B` page\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n"
	root := fstest.MapFS{"a.md": {}, "there.go": {}, "docs/b.md": {}}
	for line, dead := range map[string]bool{
		"[b](docs/b.md)":                        false,
		"[the directory](docs)":                 false,
		"[b](docs/b.md#the-b-page)":             false,
		"[b](docs/b.md#twice-1 \"the second\")": false,
		"[here](#here)":                         false,
		"[code](there.go#L1)":                   false,
		"[elsewhere](https://example.com/#x)":   false,
		"`[code](nowhere)`":                     false,
		"[![a picture](there.go)](docs/b.md)":   false,
		"[b](docs/b.md#twice-2)":                true,
		"[b](docs/b.md#no-heading)":             true,
		"[b](b.md)":                             true,
		"[beyond](../../b.md)":                  true,
		"![a picture](docs/b.svg)":              true,
		"[![a picture](docs/b.svg)](docs/b.md)": true,
		"<img alt=\"b\" src=\"docs/b.svg\">":    true,
		"[name]: docs/c.md":                     true,
		"[there](#there)":                       true,
	} {
		pages := map[string]page{"docs/b.md": readPage(b), "a.md": readPage("# Here\n\n" + line + "\n")}
		if got := follow(root, pages); (len(got) > 0) != dead {
			t.Errorf("%s: got %v, want a problem: %v", line, got, dead)
		}
	}
}
