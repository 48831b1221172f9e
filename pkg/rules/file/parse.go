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

// Config sets how rule files are read. Its zero value is what a rule file of envoyproxy/ratelimit needs.
type Config struct {
	// DefaultAlgorithm is the algorithm by which limits that name none will be counted; the zero value means
	// sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// MergeDomains lets several files add descriptors to one domain (MERGE_DOMAIN_CONFIG); otherwise that is an
	// error.
	MergeDomains bool
	// IgnoreDotfiles leaves out files whose names begin with a dot (RUNTIME_IGNOREDOTFILES). Names that begin with
	// two dots, as Kubernetes has them in mounted ConfigMaps, are always left out.
	IgnoreDotfiles bool
	// RequireEnd refuses files whose last key is not `end: true` (RULES_REQUIRE_END). A file that was cut off is then
	// found even if nothing is known of what it was before.
	RequireEnd bool
}

// File is the text of a rule file.
type File = strictyaml.File

// Parse reads the rules of a set of files, in that order. The problems are sorted by file and line; if one of them
// is an error, the set has nothing but its generation. No content makes Parse panic or run for long.
func Parse(files []File, cfg Config) (rules.Set, rules.Problems) {
	s := snapshot{files: make([]seenFile, len(files))}
	for i, f := range files {
		s.files[i].File = f
	}
	return parse(s, cfg)
}

// root is a rule file.
type root struct {
	ratelimit.Domain `yaml:",inline"`

	Authz *authz.Policy `yaml:"authz,bare" doc:"The policy of ext_authz: who may call what, and how often."`
	End   bool          `yaml:"end" doc:"Marks a complete file, as its last key. RULES_REQUIRE_END demands it."`
}

// ruleSet gathers the rules of several files.
type ruleSet struct {
	rules.Set
	docs  []*strictyaml.Document
	roots []root
	// policyOf is the document that has the policy of a domain.
	policyOf map[string]*strictyaml.Document
}

func parse(s snapshot, cfg Config) (rules.Set, rules.Problems) {
	set := ruleSet{policyOf: map[string]*strictyaml.Document{}}
	kind := ruleKind()
	set.roots = make([]root, len(s.files))
	for i, f := range s.files {
		doc := strictyaml.Decode(f.File, kind, &set.roots[i])
		set.roots[i].Position = doc.Position("domain")
		checkEnd(doc, &set.roots[i], cfg)
		set.docs = append(set.docs, doc)
	}
	set.checkDomains(cfg)
	for i := range set.roots {
		set.add(i, cfg)
	}
	for i := range set.Domains {
		d := &set.Domains[i]
		if policy := set.Policies[d.Name]; policy != nil {
			add(set.policyOf[d.Name], "authz", policy.CheckDomain(d))
		}
	}

	problems := slices.Clone(s.problems)
	for _, doc := range set.docs {
		problems = append(problems, doc.Problems()...)
	}
	if problems.HasErrors() {
		set.Set = rules.Set{}
	}
	set.Generation = s.generation()
	return set.Set, problems
}

// add adds mistakes to the problems of a file.
func add(doc *strictyaml.Document, prefix string, mistakes []ratelimit.Mistake) {
	for _, m := range mistakes {
		doc.Add(prefix, strictyaml.Mistake(m))
	}
}

// checkDomains reports what makes no sense in the rate limits of all files.
func (s *ruleSet) checkDomains(cfg Config) {
	domains := make([]ratelimit.Domain, len(s.roots))
	for i := range s.roots {
		domains[i] = s.roots[i].Domain
	}
	options := ratelimit.CheckOptions{DefaultAlgorithm: cfg.DefaultAlgorithm, MergeDomains: cfg.MergeDomains}
	for i, mistakes := range ratelimit.Check(domains, options) {
		add(s.docs[i], "", mistakes)
	}
}

// add adds what a file says to its domain. A domain has one policy, so that it is clear which rule of access comes
// first.
func (s *ruleSet) add(i int, cfg Config) {
	r, doc := &s.roots[i], s.docs[i]
	if r.Name != "" && len(r.Descriptors) == 0 && r.Authz == nil {
		doc.Add("", strictyaml.Mistake{
			Path: "domain", Also: []string{"descriptors", "authz"}, Warning: true,
			Message: "domain " + suggest.Quoted(r.Name) + " has no descriptors here: this file limits nothing",
		})
	}
	if r.Authz != nil {
		add(doc, "authz", r.Authz.Check())
	}
	at := slices.IndexFunc(s.Domains, func(d ratelimit.Domain) bool { return d.Name == r.Name })
	switch {
	case r.Name == "", at >= 0 && !cfg.MergeDomains:
		return // a mistake
	case at >= 0:
		s.Domains[at].Descriptors = append(s.Domains[at].Descriptors, r.Descriptors...)
	default:
		s.Domains = append(s.Domains, r.Domain)
	}
	if r.Authz == nil {
		return
	}
	if first := s.Policies[r.Name]; first != nil {
		doc.Add("", strictyaml.Mistake{
			Path: "authz", OnKey: true, Message: "a second `authz` for domain " + suggest.Quoted(r.Name),
			Hints: []string{"the first is at " + first.Position + ": put all of it into one file; `descriptors` may be in several"},
		})
		return
	}
	if s.Policies == nil {
		s.Policies = map[string]*authz.Policy{}
	}
	s.Policies[r.Name], s.policyOf[r.Name] = r.Authz, doc
}

// checkEnd reports an `end` that is not the last key or not true, and with Config.RequireEnd a file without one.
func checkEnd(doc *strictyaml.Document, r *root, cfg Config) {
	if doc.Root() == nil {
		return // it is not known what the file has
	}
	var keys []string
	for key := range doc.Root().Fields() {
		keys = append(keys, key)
	}
	i := slices.Index(keys, "end")
	if i < 0 {
		if cfg.RequireEnd {
			doc.FailAtEnd("the file does not end with `end: true`",
				"RULES_REQUIRE_END=true refuses such a file: it was cut off, or it is still being written",
				"if it is complete, add the line `end: true` at the top level, as the last key")
		}
		return
	}
	if !r.End && doc.Sound("end") {
		doc.Add("", strictyaml.Mistake{
			Path: "end", OnKey: true, Message: "`end` can only be `true`",
			Hints: []string{"write `end: true` as the last key of the file, or delete it"},
		})
	}
	if i+1 < len(keys) {
		doc.Add("", strictyaml.Mistake{
			Path: "end", OnKey: true, Message: "`end` is not the last key of the file",
			Hints: []string{"a key follows at " + doc.Position(keys[i+1]) + ": move `end: true` behind it"},
		})
	}
}
