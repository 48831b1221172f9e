package rulefile

import "github.com/extauthz/extauthz/pkg/authz/apikey"

// ParseKeys reads a file of API keys in YAML, the form before package keyfile's. The problems are sorted by line; if
// one of them is an error, there are no keys. No content makes it panic, and no problem shows a key or the hash of
// one.
func ParseKeys(file File) ([]apikey.Record, Problems) {
	r := newReport(file, keyGrammar())
	b := keyBuilder{report: r, ids: map[string]place{}, weak: map[apikey.Hash]place{}}
	var records []apikey.Record
	if root, ok := readRoot(r, keyRootSchema()); ok {
		records = b.records(root)
	}
	problems := r.sorted()
	if problems.HasErrors() {
		return nil, problems
	}
	return records, problems
}
