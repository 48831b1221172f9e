package file

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// prefixKind describes files that an element of `networks` names.
func prefixKind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun: "prefix file", MaxSize: ruleKind().MaxSize, TooLarge: "write several files and networks, and name all of them",
		Mask: rules.Mask,
	}
}

// prefixFile returns the path of the file that a list of the part names, "" for a list without one. Only the directory
// of the rule file has such files, so that one reading has them all, and no text of another file is shown.
func (p *part) prefixFile(l networks.List) string {
	if l.File == "" || l.File != filepath.Base(l.File) || strings.HasPrefix(l.File, "..") {
		return ""
	}
	return filepath.Join(filepath.Dir(p.file.Name), l.File)
}

// decode decodes the files that are no prefix files. Files with a line that begins with `domain` come first, so that
// the text of a prefix file is rarely read as YAML.
func (s *snapshot) decode(cfg Config) (parts []part, problems rules.Problems) {
	problems = slices.Clone(s.problems)
	decoded, prefixFiles := make([]*part, len(s.files)), map[string]bool{}
	for _, hasDomain := range []bool{true, false} {
		for i, f := range s.files {
			if domainKey.Match(f.Content) != hasDomain || prefixFiles[f.Name] {
				continue
			}
			if !hasDomain && cfg.LeaveOutNotes && isNote(f) {
				problems = append(problems, strictyaml.Problem{
					File: f.Name, Warning: true, Message: "left out: not a YAML file by its name, and it sets no `domain`",
				})
				continue
			}
			p := &part{file: f}
			p.problems = decode(f, &p.root, cfg).Problems()
			for _, l := range p.Networks {
				if path := p.prefixFile(l); path != filepath.Clean(f.Name) {
					prefixFiles[path] = true
				}
			}
			decoded[i] = p
		}
	}
	for i, p := range decoded {
		if p != nil && !prefixFiles[s.files[i].Name] {
			parts = append(parts, *p)
		}
	}
	return parts, problems
}

// readNetworks returns the lists of all parts. It adds mistakes in them to the parts, and those in prefix files to the
// problems.
func (s *snapshot) readNetworks(parts []part, cfg Config, problems *rules.Problems) networks.Lists {
	lists, first := networks.Lists{}, map[string]string{}
	for i := range parts {
		p := &parts[i]
		for _, name := range slices.Sorted(maps.Keys(p.Networks)) {
			l, at, mistakes := p.Networks[name], "networks."+name, ratelimit.Mistakes{}
			switch path := p.prefixFile(l); {
			case first[name] != "":
				mistakes.Key(at).Fail("a second network "+suggest.Quoted(name),
					"the first is at "+first[name]+": all rule files share these names, so rename one of them")
			case path != "" && path == filepath.Clean(p.file.Name):
				mistakes.At(at+".file").Fail("`file` is this rule file", "name the file with the prefixes, such as `partners.txt`")
				lists[name] = nil
			case path != "":
				f, ok := s.prefixFile(path, p.file.Name)
				if !ok {
					mistakes.At(at+".file").Fail("there is no file "+suggest.Quoted(l.File)+" in the directory of this file",
						"add it, with one prefix in each line")
					lists[name] = nil
					break
				}
				var found rules.Problems
				lists[name], found = readPrefixes(f, cfg)
				*problems = append(*problems, found...)
			case l.File != "":
				mistakes.At(at+".file").Fail("`file` is not the name of a file in the directory of this file",
					"write its name alone, such as `partners.txt`")
				lists[name] = nil
			default:
				lists[name] = networks.Read(l.Prefixes, func(i int, m suggest.Mistake) {
					m.Path = ratelimit.Element(at, i)
					p.mistakes = append(p.mistakes, m)
				})
			}
			if first[name] == "" {
				first[name] = l.Position
			}
			p.mistakes = append(p.mistakes, mistakes.All()...)
		}
	}
	return lists
}

// prefixFile returns the file at a path that a rule file names. It reads it if the rule file was named by itself.
func (s *snapshot) prefixFile(path, ruleFile string) (f File, ok bool) {
	if i := slices.IndexFunc(s.files, func(f File) bool { return f.Name == path }); i >= 0 {
		return s.files[i], true
	}
	if !slices.Contains(s.alone, ruleFile) {
		return f, false
	}
	f, problem := strictyaml.ReadFile(path, nil, prefixKind())
	if problem == nil {
		s.files = append(s.files, f)
	}
	return f, problem == nil
}

// endOfPrefixes is the last line of a complete prefix file. RULES_REQUIRE_END requires it.
const endOfPrefixes = "# end"

// readPrefixes reads a prefix file: one prefix or address in each line, and comments that begin with `#`.
func readPrefixes(f File, cfg Config) (prefixes []netip.Prefix, problems rules.Problems) {
	kind := prefixKind()
	doc := strictyaml.NewDocument(f, kind)
	switch text := strings.TrimSpace(string(f.Content)); {
	case int64(len(f.Content)) > kind.MaxSize:
		doc.Fail(nil, fmt.Sprintf("larger than %d MB", kind.MaxSize>>20), kind.TooLarge)
		return nil, doc.Problems()
	case cfg.RequireEnd && !strings.HasSuffix("\n"+text, "\n"+endOfPrefixes):
		doc.FailAtEnd("the file does not end with the line "+suggest.Quoted(endOfPrefixes),
			"RULES_REQUIRE_END=true refuses such a file: it was cut off, or it is still being written")
	case text == "":
		doc.FailAtEnd("there is nothing in the prefix file", "for an empty list, write a comment, such as `# none`")
	}
	texts := slices.Clone(doc.Lines())
	for i, line := range texts {
		line, _, _ = strings.Cut(line, "#")
		texts[i] = strings.TrimSpace(line)
	}
	prefixes = networks.Read(texts, func(i int, m suggest.Mistake) { doc.AddAt(i, texts[i], m) })
	return prefixes, doc.Problems()
}
