package rulefile

import (
	"context"
	"path/filepath"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// Keys are the API keys of a file.
type Keys struct {
	// Records are in the order of the file; nil when it has errors.
	Records []apikey.Record
	// Generation is a short hash of the name and the content of the file, set even when it has errors.
	Generation string

	read snapshot // what they were read from
}

// ParseKeys reads a file of API keys. The problems are sorted by line; when one of them is an error, there are no records. No
// content makes it panic, and no problem shows a key or the hash of one.
func ParseKeys(file File) (Keys, Problems) {
	return parseKeys(snapshot{files: []File{file}})
}

// LoadKeys reads the file of API keys at a path. A file that is missing or cannot be read is an error, too.
func LoadKeys(path string) (Keys, Problems) {
	return parseKeys(settled(func() snapshot { return readKeyFile(path) }))
}

func readKeyFile(path string) snapshot {
	s := snapshot{place: placeOf(filepath.Dir(path))}
	file, problem := readFile(path, keyGrammar())
	if problem != nil {
		problem.Severity = Error // what would be left out of a directory is all there is here
		problem.Hints = append(problem.Hints, "API_KEYS_FILE names a file; `extauthz keys create` makes one")
		s.problems = Problems{*problem}
		return s
	}
	s.files = []File{file}
	return s
}

func parseKeys(s snapshot) (Keys, Problems) {
	keys := Keys{Generation: s.generation(), read: s}
	problems := s.problems
	for _, f := range s.files {
		r := newReport(f, keyGrammar())
		b := keyBuilder{report: r, ids: map[string]place{}, weak: map[apikey.Hash]place{}}
		if root, ok := readRoot(r, keyRootSchema()); ok {
			keys.Records = b.records(root)
		}
		problems = append(problems, r.sorted()...)
	}
	if problems.HasErrors() {
		keys.Records = nil
	}
	return keys, problems
}

// KeyUpdate is what a KeyWatcher found when the file had changed.
type KeyUpdate struct {
	// Keys are the new keys. When Problems has errors there are none and those before stay in force.
	Keys Keys
	// Problems are the mistakes in the file, or why it could not be read.
	Problems Problems
}

// KeyWatcher follows a file of API keys as a Watcher does a directory. A text that is the beginning of the one in force
// is refused in the same way: without its end, a revoked key may come back, or a key may lose its limit. Nothing else is
// held. Use NewKeyWatcher.
type KeyWatcher struct {
	path    string
	reload  chan struct{}
	inForce snapshot // of the keys in force
	told    string   // the generation that was reported last
	cut     bool     // that one was refused as cut off
}

// NewKeyWatcher returns a watcher of the file that loaded were loaded from; it reports what differs from them.
func NewKeyWatcher(path string, loaded Keys) *KeyWatcher {
	return &KeyWatcher{path: path, reload: make(chan struct{}, 1), inForce: loaded.read, told: loaded.Generation}
}

// Reload makes Run read the file at once: see Watcher.Reload.
func (w *KeyWatcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is waiting already
	}
}

// Run calls update once for each change of the file until the context is done, also for errors: see Watcher.Run.
func (w *KeyWatcher) Run(ctx context.Context, update func(KeyUpdate)) {
	read := func() snapshot { return readKeyFile(w.path) }
	follow(ctx, w.told, w.reload, read, func(r reading) {
		if u, report := w.take(r); report {
			update(u)
		}
	})
}

// take judges a settled reading; report is false when there is nothing to report.
func (w *KeyWatcher) take(r reading) (u KeyUpdate, report bool) {
	isNew := r.generation != w.told
	if !isNew && !w.cut {
		return u, false
	}
	cut := cutOff(changes(w.inForce, r.snapshot), keyGrammar())
	w.told, w.cut = r.generation, len(cut) > 0 && !r.confirmed()
	if w.cut {
		return KeyUpdate{Keys: Keys{Generation: r.generation}, Problems: cut}, isNew || r.asked
	}
	u.Keys, u.Problems = parseKeys(r.snapshot)
	if !u.Problems.HasErrors() {
		w.inForce = r.snapshot
	}
	return u, true
}
