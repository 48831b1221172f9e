package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

const cookbook = "docs/cookbook"

// TestCookbook does what each page of docs/cookbook shows, in a directory of its own. It writes the files of the page,
// starts the service with them and an Envoy with the lines that the page adds, runs the commands and compares what they
// print. CONTRIBUTING.md describes the form of a page. A new page needs no code.
func TestCookbook(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(testenv.RepoRoot(t), cookbook, "*.md"))
	if err != nil || len(pages) < 2 {
		t.Fatalf("%s has the pages %v (%v), want some", cookbook, pages, err)
	}
	index := testenv.RepoFile(t, cookbook+"/README.md")
	for _, page := range pages {
		name := filepath.Base(page)
		if name == "README.md" {
			continue
		}
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("%s/README.md has no link to %s", cookbook, name)
		}
		t.Run(strings.TrimSuffix(name, ".md"), func(t *testing.T) {
			t.Parallel()
			r, err := readRecipe(testenv.RepoFile(t, filepath.Join(cookbook, name)))
			if err != nil {
				t.Fatal(err)
			}
			r.follow(t)
		})
	}
}

// TestCookbookMistakes reads pages that cannot be tested. The error names the reason.
func TestCookbookMistakes(t *testing.T) {
	const (
		rules   = "```yaml title=\"rules/shop.yaml\"\ndomain: shop\n```\n"
		lines   = "```yaml title=\"envoy.yaml\"\n# Here: routes\n- match: { prefix: /a }\n```\n"
		console = "```console\n$ curl localhost:10000\n```\n"
	)
	for _, c := range []struct{ name, page, want string }{
		{"a whole page", rules + lines + console, ""},
		{"nothing for Envoy", rules + console, ""},
		{"no rules", lines + console, "want a file in rules/"},
		{"no commands", rules + lines, "and 0 commands"},
		{"a block that is not tested", rules + lines + console + "```yaml\na: b\n```\n", `a block begins with "yaml"`},
		{"two blocks of one name", rules + lines + lines + console, `two blocks are named "envoy.yaml"`},
		{"output before the first command", rules + "```console\n200\n$ date\n```\n", `want a command after "$ "`},
		{"an unknown place", rules + strings.Replace(lines, "routes", "roads", 1) + console, `no place "# Here: roads\n"`},
		{"lines without a place", rules + strings.Replace(lines, "# Here", "# There", 1) + console, `no place ""`},
	} {
		r, err := readRecipe("# A page\n\n" + c.page)
		if err == nil {
			_, err = r.complete(testenv.RepoFile(t, cookbook+"/envoy.yaml"))
		}
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) && err != nil {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestPrinted compares what a command prints with what a page says.
func TestPrinted(t *testing.T) {
	for _, c := range []struct {
		page, got string
		want      bool
	}{
		{"200\n", "200\n", true},
		{"200\n\n", "200\n\n", true},
		{"", "\n", true},
		{"", "200\n", false},
		{"200\n", "", false},
		{"200\n", "200\n429\n", false},
		{"HTTP/1.1 200 OK\n...\n", "HTTP/1.1 200 OK\n", true},
		{"HTTP/1.1 200 OK\n...\n", "HTTP/1.1 200 OK\ndate: today\n\nbody\n", true},
		{"...\nratelimit: \"free\";r=2;t=...\n...\n", "HTTP/1.1 200 OK\nratelimit: \"free\";r=2;t=60\ndate: today\n", true},
		{"...\nratelimit: \"free\";r=2;t=...\n...\n", "HTTP/1.1 200 OK\nratelimit: \"free\";r=1;t=60\ndate: today\n", false},
		{"{...}\n", "{\n}\n", false},
	} {
		if got := printed(c.page).MatchString(c.got); got != c.want {
			t.Errorf("the page says %q, the command prints %q: got %v, want %v", c.page, c.got, got, c.want)
		}
	}
}

// recipe is a page of the cookbook.
type recipe struct {
	files      map[string]string // by path: those of rules/, envoyLines, and what else the page has
	transcript []exchange
}

// exchange is a command and what it prints.
type exchange struct {
	command, prints string
}

// envoyLines is the file of a page with the lines that it adds to docs/cookbook/envoy.yaml, each below its place.
const envoyLines = "envoy.yaml"

// place is the beginning of a comment in docs/cookbook/envoy.yaml, below which a page adds lines.
const place = "# Here: "

var fenced = regexp.MustCompile("(?ms)^```([^`\n]*)\n(.*?)^```$")

// readBlocks reads the files and the transcript of a page, and returns the first lines of its other blocks.
func readBlocks(page string) (r *recipe, others []string, err error) {
	r = &recipe{files: map[string]string{}}
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		info, content := block[1], block[2]
		path, isFile := strings.CutPrefix(info, info[:strings.IndexByte(info+" ", ' ')]+` title="`)
		switch {
		case isFile:
			path = strings.TrimSuffix(path, `"`)
			if r.files[path] != "" {
				return nil, nil, fmt.Errorf("two blocks are named %q", path)
			}
			r.files[path] = content
		case info == "console":
			if err := r.readConsole(content); err != nil {
				return nil, nil, err
			}
		default:
			others = append(others, info)
		}
	}
	return r, others, nil
}

// readRecipe reads the blocks of a page of the cookbook. A block that it cannot test is an error.
func readRecipe(page string) (*recipe, error) {
	r, others, err := readBlocks(page)
	if err != nil {
		return nil, err
	}
	if others != nil {
		return nil, fmt.Errorf("a block begins with %q, want a file (`yaml title=\"rules/shop.yaml\"`) or `console`",
			others[0])
	}
	if len(r.rules()) == 0 || len(r.transcript) == 0 {
		return nil, fmt.Errorf("want a file in rules/ and a `console` block; got the files %v and %d commands",
			slices.Sorted(maps.Keys(r.files)), len(r.transcript))
	}
	return r, nil
}

// rules are the paths of the rule files.
func (r *recipe) rules() (paths []string) {
	for path := range r.files {
		if filepath.Dir(path) == "rules" {
			paths = append(paths, path)
		}
	}
	return paths
}

// readConsole reads commands, each after "$ ", and what they print. A command continues after a line that ends with a
// backslash.
func (r *recipe) readConsole(content string) error {
	continued := false
	for line := range strings.Lines(content) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch last := len(r.transcript) - 1; {
		case isCommand:
			r.transcript = append(r.transcript, exchange{command: command})
			line = command
			continued = true
		case last < 0:
			return fmt.Errorf("a console block begins with %q, want a command after %q", line, "$ ")
		case continued:
			r.transcript[last].command += line
		default:
			r.transcript[last].prints += line
		}
		continued = continued && strings.HasSuffix(line, "\\\n")
	}
	return nil
}

// write writes the files of the page into a new directory.
func (r *recipe) write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, content := range r.files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// follow does what the page shows. The service and Envoy start before the first command that asks them.
func (r *recipe) follow(t *testing.T) {
	r.files[envoyLines] = r.envoy(t)
	dir := r.write(t)
	r.check(t, dir)
	terminal := newTerminal(t, dir, append(r.publish(t),
		"RUNTIME_ROOT=.", "RUNTIME_APPDIRECTORY=rules", "API_KEYS_FILE=keys.jsonl", serverSecret)...)
	var d *deployment
	for _, e := range r.transcript {
		if d == nil && strings.Contains(e.command, "localhost:") {
			d = deploy(t, dir, r.files[envoyLines], terminal.environment())
		}
		command := d.asInTest(t, e.command)
		got := d.asOnPage(terminal.run(command))
		t.Logf("$ %s%s", e.command, got) // for authors of pages
		if !printed(e.prints).MatchString(got) {
			t.Fatalf("$ %s\ngot\n%s\nthe page says\n%s", e.command, got, e.prints)
		}
	}
}

// printed matches what a command prints with what a page says. A line "..." stands for any lines, "..." in a line for
// any text. Empty lines at the end do not count.
func printed(want string) *regexp.Regexp {
	want = strings.TrimRight(want, "\n") + "\n"
	var b strings.Builder
	b.WriteString(`\A`)
	for line := range strings.Lines(want) {
		if line == "...\n" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`))
	}
	b.WriteString(`\n*\z`)
	return regexp.MustCompile(b.String())
}

// check runs `extauthz check` on the files of the page. A warning fails the test, unless the page itself runs this
// command.
func (r *recipe) check(t *testing.T, dir string) {
	t.Helper()
	args := []string{"check", "rules"}
	for _, path := range r.rules() {
		if strings.Contains(r.files[path], "\nauthz:") {
			args = append(args, "--envoy", envoyLines)
			break
		}
	}
	for _, e := range r.transcript {
		if strings.HasPrefix(e.command, "extauthz check") {
			return
		}
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	var output testenv.Output
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil || strings.Contains(output.String(), "warning: ") {
		t.Errorf("extauthz %s: %v\n%s", strings.Join(args, " "), err, output.String())
	}
}

// envoy returns docs/cookbook/envoy.yaml with the lines of the page.
func (r *recipe) envoy(t *testing.T) string {
	t.Helper()
	config, err := r.complete(testenv.RepoFile(t, cookbook+"/envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// complete adds the lines of the page to a configuration, each below its place and with the indentation of that.
func (r *recipe) complete(config string) (string, error) {
	lines := map[string]string{} // by place
	at := ""
	for line := range strings.Lines(r.files[envoyLines]) {
		if strings.HasPrefix(line, place) {
			at, line = line, ""
		}
		lines[at] += line
	}
	var b strings.Builder
	for line := range strings.Lines(config) {
		b.WriteString(line)
		at := strings.TrimLeft(line, " ")
		for added := range strings.Lines(lines[at]) {
			b.WriteString(strings.TrimSuffix(line, at) + added)
		}
		delete(lines, at)
	}
	for at, added := range lines {
		return "", fmt.Errorf("%s/envoy.yaml has no place %q, for the lines %q", cookbook, at, added)
	}
	return b.String(), nil
}
