package file

import (
	"io"
	"os"
	"slices"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Config configures how rule files are read. The zero value fits rule files of envoyproxy/ratelimit.
type Config struct {
	ratelimit.CheckOptions
	// IgnoreDotfiles leaves out files with a dot in front (RUNTIME_IGNOREDOTFILES). Two dots are always left out.
	IgnoreDotfiles bool
	// LeaveOutNotes leaves out files such as NOTES.txt, with a warning: by name no YAML files, and without a domain.
	LeaveOutNotes bool
	// AllowEmpty makes a directory without rule files a warning for Load and Check: rules may be written after the start.
	// For Run it is always an error, so that rules that vanish stay active.
	AllowEmpty bool
	// RequireEnd refuses files whose last key is not `end: true` (RULES_REQUIRE_END): they may have been cut off.
	RequireEnd bool
}

// File is a rule file as it was read. Parse needs its name and its content.
type File = strictyaml.File

// Parse reads the rules of a set of files, in that order. The problems are sorted by file and line. If one of them is
// an error, the set has only its generation. No content makes Parse panic or run for long.
func Parse(files []File, cfg Config) (rules.Set, rules.Problems) {
	return parse(snapshot{files: files}, cfg)
}

// Check reads the rules of directories, files and standard input together, as Parse does.
func Check(paths []string, stdin io.Reader, cfg Config) (rules.Set, rules.Problems) {
	var all snapshot
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			reading, _ := follow(path, cfg).Read()
			found := snapshotOf(path, reading, cfg)
			all.files, all.problems = append(all.files, found.files...), append(all.problems, found.problems...)
			continue
		}
		file, problem := strictyaml.ReadFile(path, stdin, ruleKind())
		if problem != nil {
			problem.Warning = false // the caller named this file
			all.problems = append(all.problems, *problem)
			continue
		}
		all.files, all.alone = append(all.files, file), append(all.alone, path)
	}
	return parse(all, cfg)
}

// root is the content of a rule file.
type root struct {
	ratelimit.Domain `yaml:",inline"`

	Networks map[string]networks.List `yaml:"networks" doc:"Lists of prefixes by name, for the rules and policies of all rule files." example:"{office: [10.0.0.0/8, \"2001:db8::/32\"], partners: [192.0.2.7]}"`

	Authz *authz.Policy `yaml:"authz,bare" doc:"The policy of ext_authz: who may call what, and how often."`
	End   bool          `yaml:"end" doc:"The last key. It marks a complete file. RULES_REQUIRE_END requires it."`
}

// part is what a rule file adds to a set.
type part struct {
	root
	file     File
	problems rules.Problems
	// mistakes are those of its decoded values, and ofPolicy those of its policy, until place.
	mistakes, ofPolicy []suggest.Mistake
}

func parse(s snapshot, cfg Config) (rules.Set, rules.Problems) {
	parts, problems := s.decode(cfg)
	set := rules.Set{Policies: map[string]*authz.Policy{}, Networks: s.readNetworks(parts, cfg, &problems)}
	cfg.Networks = set.Networks
	domains := make([]ratelimit.Domain, len(parts))
	for i := range parts {
		domains[i] = parts[i].Domain
	}
	for i, mistakes := range ratelimit.Check(domains, cfg.CheckOptions) {
		parts[i].mistakes = append(parts[i].mistakes, mistakes...)
	}
	for i := range parts {
		add(&set, &parts[i], cfg)
	}
	for i := range parts {
		p := &parts[i]
		if policy := set.Policies[p.Name]; policy != nil && policy == p.Authz {
			p.ofPolicy = append(p.ofPolicy, policy.CheckDomain(&set.Domains[domainOf(set, p.Name)], cfg.CheckOptions)...)
		}
		p.place(cfg)
		problems = append(problems, p.problems...)
	}
	if problems.HasErrors() {
		set = rules.Set{}
	}
	set.Generation = s.generation()
	return set, problems
}

// decode decodes a file and reports the mistakes that show there.
func decode(f File, r *root, cfg Config) *strictyaml.Document {
	doc := strictyaml.Decode(f, ruleKind(), r)
	r.Position = doc.Position("domain")
	for name, l := range r.Networks {
		l.Position = doc.Position("networks." + name)
		r.Networks[name] = l
	}
	CheckEnd(doc, r.End, cfg.RequireEnd)
	return doc
}

// place adds the mistakes to the problems of the file. Their places are in the document, which takes 30 times
// the memory of the file. So no document is kept: a file with mistakes is decoded again.
func (p *part) place(cfg Config) {
	if len(p.mistakes)+len(p.ofPolicy) == 0 {
		return
	}
	doc := decode(p.file, new(root), cfg)
	doc.Add("", p.mistakes...)
	doc.Add("authz", p.ofPolicy...)
	p.problems = doc.Problems()
}

// add adds the rules of a file to its domain. A domain has one policy, so that the order of its access rules is clear.
func add(set *rules.Set, p *part, cfg Config) {
	if p.Name != "" && len(p.Descriptors) == 0 && p.Authz == nil {
		p.mistakes = append(p.mistakes, suggest.Mistake{
			Path: "domain", Also: []string{"descriptors", "authz"}, Warning: true,
			Message: "domain " + suggest.Quoted(p.Name) + " has no descriptors here: this file limits nothing",
		})
	}
	if p.Authz != nil {
		p.ofPolicy = p.Authz.Check()
	}
	at := domainOf(*set, p.Name)
	switch {
	case p.Name == "", at >= 0 && !cfg.MergeDomains:
		return // ratelimit.Check has reported it
	case at >= 0:
		set.Domains[at].Descriptors = append(set.Domains[at].Descriptors, p.Descriptors...)
	default:
		set.Domains = append(set.Domains, p.Domain)
	}
	if p.Authz == nil {
		return
	}
	if first := set.Policies[p.Name]; first != nil {
		p.ofPolicy = append(p.ofPolicy, suggest.Mistake{
			OnKey: true, Message: "a second `authz` for domain " + suggest.Quoted(p.Name),
			Hints: []string{
				"the first is at " + first.Position + ": put the whole policy into one file; `descriptors` may be in several",
			},
		})
		return
	}
	set.Policies[p.Name] = p.Authz
}

// domainOf returns the index of a domain, -1 if there is none.
func domainOf(set rules.Set, name string) int {
	return slices.IndexFunc(set.Domains, func(d ratelimit.Domain) bool { return d.Name == name })
}

// CheckEnd reports an `end` that is not the last key or not true, or a file without one if it is required.
func CheckEnd(doc *strictyaml.Document, end, required bool) {
	if doc.Root() == nil {
		return // the keys of the file are unknown
	}
	var keys []string
	for key := range doc.Root().Fields() {
		keys = append(keys, key)
	}
	fail := func(message, hint string) {
		doc.Add("", suggest.Mistake{Path: "end", OnKey: true, Message: message, Hints: []string{hint}})
	}
	switch i := slices.Index(keys, "end"); {
	case i < 0 && required:
		doc.FailAtEnd("the file does not end with `end: true`",
			"RULES_REQUIRE_END=true refuses such a file: it was cut off, or it is still being written",
			"if it is complete, add the line `end: true` at the top level, as the last key")
	case i >= 0:
		if !end && doc.Sound("end") {
			fail("`end` can only be `true`", "write `end: true` as the last key of the file, or delete it")
		}
		if i+1 < len(keys) {
			fail("`end` is not the last key of the file",
				"a key follows at "+doc.Position(keys[i+1])+": move `end: true` to the end")
		}
	}
}
