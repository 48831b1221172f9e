// Package rulefile reads rate limit rules and policies of authorization from YAML files: the format of envoyproxy/ratelimit with
// some keys more. It finds all mistakes of all files at once and shows each where it stands, and it watches a directory for
// changes. It also reads API keys from YAML, the form that key files had before.
package rulefile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Config says how rule files are read. Its zero value is what a rule file of envoyproxy/ratelimit needs.
type Config struct {
	// DefaultAlgorithm is the algorithm by which limits that name none will be counted; the zero value means sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// MergeDomains lets several files add descriptors to one domain (MERGE_DOMAIN_CONFIG); otherwise that is an error.
	MergeDomains bool
	// IgnoreDotfiles leaves out files whose names begin with a dot (RUNTIME_IGNOREDOTFILES). Names that begin with two
	// dots, as Kubernetes has them in mounted ConfigMaps, are always left out.
	IgnoreDotfiles bool
	// RequireEnd refuses files whose last key is not `end: true` (RULES_REQUIRE_END), so that a file that was cut is found even
	// when nothing is known of what it was before.
	RequireEnd bool
}

// File is one rule file as it was read.
type File struct {
	// Name is what problems and positions call the file, usually its path.
	Name    string
	Content []byte

	info os.FileInfo // of the open file that Content was read from; nil when it was not read from one
	// inPlace says that the file may have been written to since it got its name, so that it may not be complete.
	inPlace bool
}

// Rules are the rules of a set of files.
type Rules struct {
	// Domains are sorted by the file they first appear in; nil when the files have errors.
	Domains []ratelimit.Domain
	// Policies are the authz sections by domain; nil when no file has one, or when the files have errors.
	Policies map[string]*authz.Policy
	// Generation is a short hash of the base names and contents of the files: equal generations mean equal rules. It is
	// set even when the files have errors.
	Generation string
}

// Parse reads the rules of a set of files, in that order. The problems are sorted by file and line; when one of them is an
// error, Rules has no domains. No content makes Parse panic or run for long.
func Parse(files []File, cfg Config) (Rules, Problems) {
	return parse(snapshot{files: files}, cfg)
}

// snapshot is what one look at a rule source found.
type snapshot struct {
	// place tells directories apart, of which one has replaced another: it is where the links lead.
	place    string
	files    []File
	problems Problems
}

// file returns the file of a name, nil when there is none.
func (s snapshot) file(name string) *File {
	if i := slices.IndexFunc(s.files, func(f File) bool { return f.Name == name }); i >= 0 {
		return &s.files[i]
	}
	return nil
}

// generation tells snapshots with different contents or different errors apart. Warnings do not count, so that an editor's
// swap file is no change.
func (s snapshot) generation() string {
	h := sha256.New()
	for _, f := range s.files {
		writePart(h, filepath.Base(f.Name))
		writePart(h, string(f.Content))
	}
	for _, p := range s.problems {
		if p.Severity == Error {
			writePart(h, filepath.Base(p.File))
			writePart(h, p.Message)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

func writePart(h hash.Hash, part string) {
	fmt.Fprintf(h, "%d:%s", len(part), part)
}

func parse(s snapshot, cfg Config) (Rules, Problems) {
	rules := Rules{Generation: s.generation()}
	set := domainSet{merge: cfg.MergeDomains}
	reports := make([]*report, len(s.files))
	grammar := ruleGrammar()
	for i, f := range s.files {
		reports[i] = newReport(f, grammar)
		if root, ok := readRoot(reports[i], rootSchema()); ok {
			checkEnd(reports[i], root, cfg)
			set.add(root, builder{report: reports[i]})
		}
	}
	set.checkRules(ratelimit.CheckOptions{DefaultAlgorithm: cfg.DefaultAlgorithm, MergeDomains: cfg.MergeDomains})
	set.checkLeads()

	problems := s.problems
	for _, r := range reports {
		problems = append(problems, r.sorted()...)
	}
	if !problems.HasErrors() {
		rules.Domains, rules.Policies = set.domains(), set.policies()
	}
	return rules, problems
}

// readRoot reads the text of one file into what its keys say; ok is false when nothing can be made of it.
func readRoot[T any](r *report, schema object[T]) (root T, ok bool) {
	if !r.checkText() {
		return root, false
	}
	if r.root = readTree(r); r.root == nil {
		return root, false
	}
	return readObject(r, schema, r.root)
}
