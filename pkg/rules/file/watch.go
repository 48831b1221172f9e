package file

import (
	"bytes"
	"context"
	"path/filepath"
	"time"
	"unicode"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Watcher follows the rule files of a directory. A change takes effect within two seconds, except that a file of which
// only the beginning is left may have to wait: see Incomplete. Use NewWatcher.
type Watcher struct {
	follower *poll.Follower
	dir      string
	cfg      Config
	// active is the reading that the active rules were made of, and generation is theirs.
	active     poll.Reading
	generation string
	reported   string // the generation that was reported last
	waiting    bool   // a file of the reported generation is incomplete
}

// NewWatcher returns a watcher of a directory.
func NewWatcher(dir string, cfg Config) *Watcher {
	return &Watcher{follower: follow(dir, cfg), dir: dir, cfg: cfg}
}

// Load reads the rules of the directory. Run then reports changes of them; without Load, also the first rules.
func (w *Watcher) Load(context.Context) (rules.Set, rules.Problems) {
	r := w.follower.Load()
	set, problems := parse(snapshotOf(w.dir, r, w.cfg), w.cfg)
	w.reported = set.Generation
	if !problems.HasErrors() {
		w.active, w.generation = r, set.Generation
	}
	return set, problems
}

// Reload makes Run read the files at once, as on SIGHUP.
func (w *Watcher) Reload() { w.follower.Reload() }

// Run calls update once for each change of the files' contents until the context is done, one call after the other, in
// the caller's goroutine. It also calls update once for each state with errors, such as a directory that has vanished
// or has no rule files. If the active rules come back after errors, it calls update again. Run may be called once.
func (w *Watcher) Run(ctx context.Context, update func(rules.Update)) {
	w.follower.Run(ctx, func(r poll.Reading, _ bool) {
		if u, report := w.take(r); report {
			update(u)
		}
	})
}

// take decides on files whose contents have settled. report is false if there is nothing to report.
func (w *Watcher) take(r poll.Reading) (u rules.Update, report bool) {
	cfg := w.cfg
	cfg.AllowEmpty = false
	s := snapshotOf(w.dir, r, cfg)
	generation := s.generation()
	if generation == w.generation {
		w.active = r // the same texts, perhaps in other files
	}
	isNew := generation != w.reported
	if !isNew && !w.waiting {
		return u, false
	}
	var incomplete strictyaml.Problems
	for _, f := range s.files {
		if active, ok := w.active.File(f.Name); ok {
			incomplete = append(incomplete, Incomplete(active, f, ruleKind())...)
		}
	}
	w.reported, w.waiting = generation, incomplete.HasErrors()
	if w.waiting {
		u.Set.Generation, u.Problems = generation, incomplete
		return u, isNew
	}
	if u.Set, u.Problems = parse(s, cfg); !u.Problems.HasErrors() {
		w.active, w.generation = r, generation
	}
	return u, true
}

// QuietPeriod is how long a file that may be incomplete has to stay unchanged before it takes effect.
const QuietPeriod = 10 * time.Second

// Incomplete reports a file that still has to wait: only the beginning of its active text is left, it was not renamed
// into place, and it has changed within QuietPeriod. Its writer may not be done. White space and comments at the end do
// not count.
func Incomplete(active, now File, kind *strictyaml.Kind) strictyaml.Problems {
	whole, left := withoutEnd(active.Content), trimEnd(now.Content)
	if !now.InPlace || now.Place != active.Place || time.Since(now.Since) >= QuietPeriod ||
		len(left) >= len(whole) || !bytes.HasPrefix(active.Content, now.Content) {
		return nil
	}
	doc := strictyaml.NewDocument(now, kind)
	missing := bytes.Count(bytes.TrimSpace(whole[len(left):]), []byte("\n")) + 1
	doc.FailAtEnd("the file ends here, but the active rules continue for "+suggest.Counted(missing, "line")+
		": it takes effect when it has been unchanged for "+QuietPeriod.String()+", because it may still be being written",
		"write the whole file to ..new in the same directory, and then `mv ..new "+filepath.Base(now.Name)+"`: "+
			"a renamed file does not wait")
	return doc.Problems()
}

// withoutEnd returns a text without white space and comment lines at its end.
func withoutEnd(text []byte) []byte {
	for {
		text = trimEnd(text)
		last := bytes.LastIndexByte(text, '\n') + 1
		if !bytes.HasPrefix(bytes.TrimSpace(text[last:]), []byte("#")) {
			return text
		}
		text = text[:last]
	}
}

func trimEnd(text []byte) []byte { return bytes.TrimRightFunc(text, unicode.IsSpace) }
