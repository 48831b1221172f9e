package file

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

// TestReference compares docs/reference/rules.md and policy.md with the tags, the notes, and the mistakes of
// testdata/problems. `make reference` writes the pages.
func TestReference(t *testing.T) {
	top, mistakes := Reference(), knownMistakes(t)
	rules := reference{mistakes: map[string][]ratelimit.Mistake{}}
	policy := reference{mistakes: map[string][]ratelimit.Mistake{}}
	pageOf := func(f *strictyaml.Field) *reference {
		if f.Path == "authz" || strings.HasPrefix(f.Path, "authz.") {
			return &policy
		}
		return &rules
	}
	for _, f := range top.All() {
		if f.Fields == nil && f.Path != "" { // the section of the map around the key has its mistakes
			around := top.At(strings.TrimSuffix(strings.TrimSuffix(f.Path, f.Name()), "."))
			pageOf(around).mistakes[around.Path] = append(pageOf(around).mistakes[around.Path], mistakes[f.Path]...)
			continue
		}
		pageOf(f).mistakes[f.Path] = append(mistakes[f.Path], pageOf(f).mistakes[f.Path]...)
	}
	rules.share()
	policy.share()
	for _, f := range top.All() {
		pageOf(f).write(f)
	}
	testenv.CheckPage(t, "docs/reference/rules.md", rules.page(), *update)
	testenv.CheckPage(t, "docs/reference/policy.md", policy.page(), *update)
}

// TestExamplesOfTheReference loads every example of the notes. It also loads them with every example of a tag in place
// of the key's value. Each key must be in an example of the notes.
func TestExamplesOfTheReference(t *testing.T) {
	top, values := Reference(), exampleValues(t)
	for _, f := range top.All()[1:] {
		v, ok := values[f.Path]
		switch {
		case !ok && inAPIKey(f):
			continue // an example has the key below api_key
		case !ok:
			t.Errorf("no example of notes.md has the key %s", f.Path)
			continue
		}
		if f.Example == "" {
			continue
		}
		var example yaml.Node
		if err := yaml.Unmarshal([]byte(f.Example), &example); err != nil {
			t.Errorf("%s: example: %v", f.Path, err)
			continue
		}
		old := *v.node
		*v.node = *example.Content[0]
		text, err := yaml.Marshal(v.file)
		*v.node = old
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := Parse(exampleFiles(f.Path, text), Config{}); problems.HasErrors() {
			t.Errorf("the tag example of %s: %v\n%s", f.Path, problems, text)
		}
	}
}

// exampleFiles returns the file of an example, and the prefix file that it names.
func exampleFiles(name string, text []byte) []File {
	files := []File{{Name: name, Content: text}}
	if strings.Contains(string(text), "partners.txt") {
		files = append(files, File{Name: "partners.txt", Content: []byte("192.0.2.0/24\n")})
	}
	return files
}

// value is the value of a key in an example.
type value struct{ file, node *yaml.Node }

// exampleValues loads the examples of the notes. It returns the first value of each key.
func exampleValues(t *testing.T) map[string]value {
	t.Helper()
	values := map[string]value{}
	top := Reference()
	for _, block := range regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```").FindAllStringSubmatch(notes, -1) {
		text := []byte(block[1] + "\n")
		if _, problems := Parse(exampleFiles("notes.md", text), Config{}); len(problems) > 0 {
			t.Errorf("%s\n%v", text, problems)
		}
		var file yaml.Node
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		gather(values, top, "", value{&file, file.Content[0]})
	}
	return values
}

// gather adds the values of all keys of a map, or of the maps of a list.
func gather(values map[string]value, top *strictyaml.Field, at string, v value) {
	for i, node := range v.node.Content {
		switch {
		case v.node.Kind == yaml.SequenceNode:
			gather(values, top, at, value{v.file, node})
		case v.node.Kind == yaml.MappingNode && i%2 == 1:
			f := top.At(join(at, v.node.Content[i-1].Value))
			if f == nil { // a map with any keys, such as networks
				gather(values, top, at, value{v.file, node})
				continue
			}
			if _, known := values[f.Path]; !known {
				values[f.Path] = value{v.file, node}
			}
			gather(values, top, f.Path, value{v.file, node})
		}
	}
}

func join(at, key string) string { return strings.TrimPrefix(at+"."+key, ".") }

// knownMistakes returns the mistakes of testdata by the paths of their keys. It returns one of several messages that
// differ only in numbers, or in quoted texts that are not keys.
func knownMistakes(t *testing.T) map[string][]ratelimit.Mistake {
	t.Helper()
	top, mistakes, known := Reference(), map[string][]ratelimit.Mistake{}, map[string]bool{}
	isKey := map[string]bool{}
	for _, f := range top.All() {
		isKey[f.Name()] = true
	}
	index, varying := regexp.MustCompile(`\[\d+\]`), regexp.MustCompile("`[^`]*`|[0-9]+")
	for _, files := range testFiles(t) {
		_, problems := Parse(files, Config{})
		for _, m := range found(files) {
			at := top.At(index.ReplaceAllString(m.Path, ""))
			if at == nil || !slices.ContainsFunc(problems, func(p strictyaml.Problem) bool { return p.Message == m.Message }) {
				continue // it follows from a mistake of the file, and is not reported
			}
			id := at.Path + varying.ReplaceAllStringFunc(m.Message, func(text string) string {
				if name, _, _ := strings.Cut(strings.Trim(text, "`"), ":"); isKey[name] {
					return text
				}
				return ""
			})
			if !known[id] {
				known[id] = true
				mistakes[at.Path] = append(mistakes[at.Path], m)
			}
		}
	}
	return mistakes
}

// testFiles returns the files of testdata: each of problems by itself, those of one archive of sets together.
func testFiles(t *testing.T) (all [][]File) {
	t.Helper()
	for _, name := range cases.Archives(t, "testdata/*/*.txtar") {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var files []File
		for _, f := range archive.Files {
			if path.Ext(f.Name) == ".yaml" {
				files = append(files, File{Name: f.Name, Content: f.Data})
			}
		}
		if strings.Contains(name, "/sets/") {
			all = append(all, files)
			continue
		}
		for i := range files {
			all = append(all, files[i:i+1])
		}
	}
	return all
}

// found returns the mistakes of files, with full paths.
func found(files []File) (mistakes []ratelimit.Mistake) {
	s := snapshot{files: files}
	parts, _ := s.decode(Config{})
	o := ratelimit.CheckOptions{Networks: s.readNetworks(parts, Config{}, new(rules.Problems))}
	var domains []ratelimit.Domain
	for _, r := range parts {
		domains, mistakes = append(domains, r.Domain), append(mistakes, r.mistakes...)
		if r.Authz == nil {
			continue
		}
		for _, m := range append(r.Authz.Check(), r.Authz.CheckDomain(&r.Domain, o)...) {
			m.Path = strings.TrimSuffix("authz."+m.Path, ".")
			mistakes = append(mistakes, m)
		}
	}
	for _, list := range ratelimit.Check(domains, o) {
		mistakes = append(mistakes, list...)
	}
	return mistakes
}

// reference writes a page.
type reference struct {
	b        strings.Builder
	mistakes map[string][]ratelimit.Mistake // by the section that has them
	shared   []ratelimit.Mistake            // those that several sections would have
}

// differing matches what differs between mistakes of one kind: quoted texts and lists of them, numbers, and names of
// algorithms.
var differing = regexp.MustCompile("`[^`]*`((, | or | and )`[^`]*`)*|[0-9]+|concurrency|[a-z]+_[a-z_]+")

// share moves mistakes that are in several sections to a list of their own, one of each kind. In a section it keeps one
// of each kind.
func (r *reference) share() {
	kind := func(m ratelimit.Mistake) string {
		what, _, _ := strings.Cut(differing.ReplaceAllString(m.Message, ""), ":")
		return what + differing.ReplaceAllString(strings.Join(m.Hints, "\n"), "")
	}
	sections := map[string]int{}
	for path, list := range r.mistakes {
		known := map[string]bool{}
		r.mistakes[path] = slices.DeleteFunc(slices.Clone(list), func(m ratelimit.Mistake) bool {
			twice := known[kind(m)]
			known[kind(m)] = true
			return twice
		})
		for k := range known {
			sections[k]++
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.mistakes)) {
		r.mistakes[path] = slices.DeleteFunc(r.mistakes[path], func(m ratelimit.Mistake) bool {
			n := sections[kind(m)]
			if n > 1 {
				r.shared = append(r.shared, m)
				sections[kind(m)] = -1
			}
			return n != 1
		})
	}
}

// page returns the page: the sections, and the mistakes that several of them share.
func (r *reference) page() string {
	if len(r.shared) > 0 {
		r.b.WriteString("## Mistakes of several keys\n\n")
		r.writeMistakes(r.shared)
	}
	return r.b.String()
}

// write writes the section of a map, or that of a key with a note.
func (r *reference) write(f *strictyaml.Field) {
	if f.Fields == nil && f.Note == "" {
		return
	}
	fmt.Fprintf(&r.b, "## %s\n\n", cmp.Or(code(f.Path), "The file"))
	if f.Fields != nil {
		if f.Note == "" {
			fmt.Fprintf(&r.b, "%s\n\n", prose(f.Doc))
		}
		r.writeKeys(f)
	}
	if f.Note != "" {
		r.b.WriteString(pages.ReplaceAllString(f.Note, "[$1](../$1)") + "\n\n")
	}
	list := slices.DeleteFunc(r.mistakes[f.Path], func(m ratelimit.Mistake) bool { // Choices state it
		return f.Choices() != nil && slices.Equal(m.Hints, []string{"add one of them"})
	})
	if len(list) > 0 {
		r.b.WriteString("Mistakes:\n\n")
		r.writeMistakes(list)
	}
}

// writeKeys writes the table of the keys of a map. Keys that another map of the page has explained are one row.
func (r *reference) writeKeys(f *strictyaml.Field) {
	r.b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	var known []string
	for _, k := range f.Fields {
		if inAPIKey(k) {
			known = append(known, code(k.Name()))
			continue
		}
		byDefault := code(k.Default)
		switch {
		case k.Required:
			byDefault = "required"
		case strings.Contains(k.Default, " "): // a description of the default
			byDefault = k.Default
		}
		fmt.Fprintf(&r.b, "| %s | %s | %s | %s |\n", link(k, code(k.Name())), kind(k), byDefault, prose(k.Doc))
	}
	if known != nil {
		fmt.Fprintf(&r.b, "| %s | | | As in [`api_key`](#authzcredentialsapi_key). |\n", strings.Join(known, ", "))
	}
	r.b.WriteString("\n")
	for _, sentence := range f.Choices() {
		if known != nil && strings.Contains(sentence, known[0]) {
			continue
		}
		if strings.Count(sentence, "`") == 2*len(f.Fields) {
			sentence = "One of these keys is required."
		}
		r.b.WriteString(sentence + "\n\n")
	}
}

// inAPIKey reports whether a key is one of a credential's place, and api_key has the same.
func inAPIKey(f *strictyaml.Field) bool {
	return strings.HasPrefix(f.Group, "source,") && !strings.HasPrefix(f.Path, "authz.credentials.api_key.")
}

// writeMistakes writes a list of messages and what to do.
func (r *reference) writeMistakes(list []ratelimit.Mistake) {
	slices.SortFunc(list, func(a, b ratelimit.Mistake) int { return cmp.Compare(a.Message, b.Message) })
	for _, m := range list {
		severity := ""
		if m.Warning {
			severity = " (warning)"
		}
		hints := slices.DeleteFunc(slices.Clone(m.Hints), func(h string) bool { return h == "" })
		if len(hints) > 1 && strings.HasPrefix(hints[1], "want one of") {
			hints = hints[:1] // the second lists the words that the key takes
		}
		fix := strings.TrimSuffix(": "+strings.Join(hints, "; "), ": ")
		fmt.Fprintf(&r.b, "- **%s**%s%s\n", m.Message, severity, fix)
	}
	r.b.WriteString("\n")
}

// pages matches the name of a page in a note. The terminal shows it as it is.
var pages = regexp.MustCompile(`\bdocs/([a-z_/-]+\.md)\b`)

// link links a text to the section of a key, if it has one.
func link(f *strictyaml.Field, text string) string {
	page := ""
	if f.Path == "authz" {
		page = "policy.md"
	}
	if f.Fields == nil && f.Note == "" {
		return text
	}
	return "[" + text + "](" + page + "#" + strings.ReplaceAll(f.Path, ".", "") + ")"
}

// kind returns the type of a key. For a map with the keys of another field, it links that field.
func kind(f *strictyaml.Field) string {
	if f.Same != nil {
		target := link(f.Same, code(f.Same.Path))
		if strings.HasPrefix(f.Path, "authz.") && !strings.HasPrefix(f.Same.Path, "authz.") {
			target = strings.Replace(target, "(#", "(rules.md#", 1) // a policy has a page of its own
		}
		return f.Type + ", as " + target
	}
	return f.Type
}

// code returns a text in backquotes, "" for none.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

// prose is a text of a tag as Markdown has it.
func prose(text string) string { return strings.ReplaceAll(text, "<", "&lt;") }

// cell returns a text with the escapes of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
