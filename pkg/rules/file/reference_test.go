package file

import (
	"cmp"
	"fmt"
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
	r := reference{top: Reference(), mistakes: knownMistakes(t), values: exampleValues(t)}
	var rules, policy strings.Builder
	for _, f := range r.top.All() {
		switch {
		case f.Path == "authz" || strings.HasPrefix(f.Path, "authz."):
			r.write(&policy, f)
		default:
			r.write(&rules, f)
		}
	}
	testenv.CheckPage(t, "docs/reference/rules.md", rules.String(), *update)
	testenv.CheckPage(t, "docs/reference/policy.md", policy.String(), *update)
}

// TestExamplesOfTheReference loads every example of the notes. It also loads them with every example of a tag in place
// of the key's value. Each key must be in an example of the notes.
func TestExamplesOfTheReference(t *testing.T) {
	top, values := Reference(), exampleValues(t)
	for _, f := range top.All()[1:] {
		v, ok := values[f.Path]
		if !ok {
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

// reference writes pages.
type reference struct {
	top      *strictyaml.Field
	mistakes map[string][]ratelimit.Mistake
	values   map[string]value
}

// write writes the section of a key if the key has more than the row of its table.
func (r *reference) write(b *strings.Builder, f *strictyaml.Field) {
	errors := r.mistakes[f.Path]
	if f.Fields == nil && f.Note == "" && errors == nil {
		return
	}
	fmt.Fprintf(b, "## %s\n\n", heading(f))
	if f.Path != "" {
		fmt.Fprintf(b, "%s\n\n", prose(f.Doc))
	}
	if f.Fields != nil {
		b.WriteString("| key | type | default | example | meaning |\n|---|---|---|---|---|\n")
		for _, k := range f.Fields {
			byDefault := code(k.Default)
			switch {
			case k.Required:
				byDefault = "required"
			case strings.Contains(k.Default, " "): // a description of the default
				byDefault = k.Default
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n",
				r.link(k, code(k.Name())), kind(r, k), byDefault, code(r.example(k)), prose(k.Doc))
		}
		b.WriteString("\n")
		for _, sentence := range f.Choices() {
			b.WriteString(sentence + "\n\n")
		}
	}
	if f.Note != "" {
		b.WriteString(f.Note + "\n\n")
	}
	if errors == nil {
		return
	}
	b.WriteString("| message | fix |\n|---|---|\n")
	slices.SortFunc(errors, func(a, b ratelimit.Mistake) int { return cmp.Compare(a.Message, b.Message) })
	for _, m := range errors {
		severity := "error"
		if m.Warning {
			severity = "warning"
		}
		hints := slices.DeleteFunc(slices.Clone(m.Hints), func(h string) bool { return h == "" })
		fmt.Fprintf(b, "| %s: %s | %s |\n", severity, cell(m.Message), cell(strings.Join(hints, "<br>")))
	}
	b.WriteString("\n")
}

func heading(f *strictyaml.Field) string { return cmp.Or(code(f.Path), "The file") }

// link links a text to the section of a key, if it has one.
func (r *reference) link(f *strictyaml.Field, text string) string {
	page := ""
	if f.Path == "authz" {
		page = "policy.md"
	}
	if f.Fields == nil && f.Note == "" && r.mistakes[f.Path] == nil {
		return text
	}
	return "[" + text + "](" + page + "#" + strings.ReplaceAll(f.Path, ".", "") + ")"
}

// kind returns the type of a key. For a map with the keys of another field, it links that field.
func kind(r *reference, f *strictyaml.Field) string {
	if f.Same != nil {
		link := r.link(f.Same, code(f.Same.Path))
		if strings.HasPrefix(f.Path, "authz.") && !strings.HasPrefix(f.Same.Path, "authz.") {
			link = strings.Replace(link, "(#", "(rules.md#", 1) // a policy has a page of its own
		}
		return f.Type + ", as " + link
	}
	return f.Type
}

// example returns a value of a key that fits into a table, "" for none.
func (r *reference) example(f *strictyaml.Field) string {
	if f.Example != "" {
		return f.Example
	}
	var flow yaml.Node
	if err := r.values[f.Path].node.Decode(&flow); err != nil {
		return ""
	}
	flow.Style, flow.LineComment, flow.HeadComment = yaml.FlowStyle, "", ""
	text, err := yaml.Marshal(&flow)
	const widest = 60
	if line := strings.TrimSpace(string(text)); err == nil && len(line) <= widest && !strings.Contains(line, "\n") {
		return line
	}
	return ""
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
