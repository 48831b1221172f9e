package file

import (
	"slices"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Config configures how rule files are read. The zero value fits rule files of envoyproxy/ratelimit.
type Config struct {
	// DefaultAlgorithm is the algorithm of limits that name none. The zero value means sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// MergeDomains lets several files add descriptors to one domain (MERGE_DOMAIN_CONFIG). Otherwise that is an error.
	MergeDomains bool
	// IgnoreDotfiles leaves out files whose names begin with a dot (RUNTIME_IGNOREDOTFILES). Names that begin with
	// two dots, as in ConfigMaps that Kubernetes mounts, are always left out.
	IgnoreDotfiles bool
	// LeaveOutNotes leaves out files such as NOTES.txt, with a warning: their names are not those of YAML files, and they
	// set no domain.
	LeaveOutNotes bool
	// AllowEmpty makes a directory without rule files a warning for Load and Check: rules may be written after the start.
	// For Run it is always an error, so that rules that vanish stay active.
	AllowEmpty bool
	// RequireEnd refuses files whose last key is not `end: true` (RULES_REQUIRE_END). It finds a file that was cut off
	// even if there is no earlier text to compare it with.
	RequireEnd bool
	// Strict is ratelimit.CheckOptions.Strict.
	Strict bool
}

// File is the name and the text of a rule file.
type File = strictyaml.File

// Parse reads the rules of a set of files, in that order. The problems are sorted by file and line. If one of them is
// an error, the set has only its generation. No content makes Parse panic or run for long.
func Parse(files []File, cfg Config) (rules.Set, rules.Problems) {
	s := snapshot{files: make([]seenFile, len(files))}
	for i, f := range files {
		s.files[i].File = f
	}
	return parse(s, cfg)
}

// root is the content of a rule file.
type root struct {
	ratelimit.Domain `yaml:",inline"`

	Authz *authz.Policy `yaml:"authz,bare" doc:"The policy of ext_authz: who may call what, and how often."`
	End   bool          `yaml:"end" doc:"The last key. It marks a complete file. RULES_REQUIRE_END requires it."`
}

func parse(s snapshot, cfg Config) (rules.Set, rules.Problems) {
	roots := make([]root, len(s.files))
	var docs []*strictyaml.Document
	var domains []ratelimit.Domain
	for i, f := range s.files {
		r := &roots[i]
		doc := strictyaml.Decode(f.File, ruleKind(), r)
		r.Position = doc.Position("domain")
		CheckEnd(doc, r.End, cfg.RequireEnd)
		docs, domains = append(docs, doc), append(domains, r.Domain)
	}
	options := ratelimit.CheckOptions{
		DefaultAlgorithm: cfg.DefaultAlgorithm, MergeDomains: cfg.MergeDomains, Strict: cfg.Strict,
	}
	for i, mistakes := range ratelimit.Check(domains, options) {
		docs[i].Add("", mistakes...)
	}
	set := rules.Set{Policies: map[string]*authz.Policy{}}
	for i := range roots {
		add(&set, docs[i], &roots[i], cfg)
	}
	problems := slices.Clone(s.problems)
	for i, r := range roots {
		if policy := set.Policies[r.Name]; policy != nil && policy == r.Authz {
			docs[i].Add("authz", policy.CheckDomain(&set.Domains[domainOf(set, r.Name)])...)
		}
		problems = append(problems, docs[i].Problems()...)
	}
	if problems.HasErrors() {
		set = rules.Set{}
	}
	set.Generation = s.generation()
	return set, problems
}

// add adds the rules of a file to its domain. A domain has one policy, so that the order of its access rules is clear.
func add(set *rules.Set, doc *strictyaml.Document, r *root, cfg Config) {
	if r.Name != "" && len(r.Descriptors) == 0 && r.Authz == nil {
		doc.Add("", suggest.Mistake{
			Path: "domain", Also: []string{"descriptors", "authz"}, Warning: true,
			Message: "domain " + suggest.Quoted(r.Name) + " has no descriptors here: this file limits nothing",
		})
	}
	if r.Authz != nil {
		doc.Add("authz", r.Authz.Check()...)
	}
	at := domainOf(*set, r.Name)
	switch {
	case r.Name == "", at >= 0 && !cfg.MergeDomains:
		return // ratelimit.Check has reported it
	case at >= 0:
		set.Domains[at].Descriptors = append(set.Domains[at].Descriptors, r.Descriptors...)
	default:
		set.Domains = append(set.Domains, r.Domain)
	}
	if r.Authz == nil {
		return
	}
	if first := set.Policies[r.Name]; first != nil {
		doc.Add("", suggest.Mistake{
			Path: "authz", OnKey: true, Message: "a second `authz` for domain " + suggest.Quoted(r.Name),
			Hints: []string{
				"the first is at " + first.Position + ": put the whole policy into one file; `descriptors` may be in several",
			},
		})
		return
	}
	set.Policies[r.Name] = r.Authz
}

// domainOf returns the index of a domain, -1 if there is none.
func domainOf(set rules.Set, name string) int {
	return slices.IndexFunc(set.Domains, func(d ratelimit.Domain) bool { return d.Name == name })
}

// CheckEnd reports an `end` that is not the last key or not true. If it is required, it reports a file without one.
// end is its value.
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
