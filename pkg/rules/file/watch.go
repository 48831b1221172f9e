package file

import (
	"context"
	"slices"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/rules"
)

// QuietPeriod is how long files must stay unchanged before a suspicious change can take effect: see Watcher.
const QuietPeriod = 10 * time.Second

// Watcher follows the rule files of a directory. A file may be cut off by a slow writer or a full disk. Therefore:
//
//   - A text that is the beginning of the active one is refused. After QuietPeriod, Reload accepts it.
//   - Rules that lose restrictions ([rules.Lost]) are held if their files were written in place or deleted. They take
//     effect after these files have been unchanged for QuietPeriod. Changes of other files do not matter.
//   - A file that was renamed into place was complete before, and is not held.
//
// A directory that was replaced in one step (by a swap of the link ..data, or of a link to it) is trusted. Use
// NewWatcher.
type Watcher struct {
	poll.Loop
	dir    string
	cfg    Config
	last   snapshot // the last reading of the files
	active rules.Set
	// activeFiles are the files of the active rules, the zero value if there are none.
	activeFiles snapshot
	reported    string // the generation that was reported last
	waiting     bool   // the reported generation was held, or refused as cut off
	// suspects identifies the files that may be cut off, and their texts. It has not changed since then.
	suspects string
	since    time.Time
}

// NewWatcher returns a watcher of a directory.
func NewWatcher(dir string, cfg Config) *Watcher {
	return &Watcher{Loop: poll.NewLoop(), dir: dir, cfg: cfg}
}

// Load reads the rules of the directory. Run then reports changes of them. Without Load, Run reports the first rules,
// too.
func (w *Watcher) Load(context.Context) (rules.Set, rules.Problems) {
	s := w.read()
	for range 3 { // until two readings agree: a start during an update must not see half of it
		before := s.generation()
		if s = w.read(); s.generation() == before {
			break
		}
	}
	generation := s.generation()
	s.allowEmpty(w.cfg)
	set, problems := parse(s, w.cfg)
	set.Generation, w.reported = generation, generation
	if !problems.HasErrors() {
		w.activeFiles, w.active = s, set
	}
	return set, problems
}

func (w *Watcher) read() snapshot {
	s := readDirectory(w.dir, w.cfg)
	s.markWritten(w.last)
	w.last = s
	if suspects := suspects(changes(w.activeFiles, s)); suspects != w.suspects {
		w.suspects, w.since = suspects, time.Now()
	}
	return s
}

// Run calls update once for each change of the files' contents until the context is done, one call after the other, in
// the caller's goroutine. It also calls update once for each state with errors, such as a directory that has vanished
// or has no rule files. If the active rules come back after errors, it calls update again. Run may be called once.
func (w *Watcher) Run(ctx context.Context, update func(rules.Update)) {
	previous, since := w.reported, time.Now()
	w.Loop.Run(ctx, func(reload bool) {
		s := w.read()
		generation := s.generation()
		agrees := generation == previous
		if !agrees {
			previous, since = generation, time.Now()
		}
		if !agrees && !reload {
			return
		}
		if u, report := w.take(s, generation, time.Since(since), reload); report {
			update(u)
		}
	})
}

// take decides on files whose contents have settled. quiet is how long they have been unchanged. reload is true after
// Reload, by which the operator confirms the files. report is false if there is nothing to report.
func (w *Watcher) take(s snapshot, generation string, quiet time.Duration, reload bool) (u rules.Update, report bool) {
	if generation == w.active.Generation {
		w.activeFiles = s // the same texts, perhaps in other files
	}
	if generation == w.reported && !w.waiting {
		return u, false
	}
	if w.suspects != "" { // a change of another file does not extend their wait
		quiet = max(quiet, time.Since(w.since))
	}
	changed := changes(w.activeFiles, s) // empty if a directory with the same texts has replaced this one
	cut := cutOff(changed)
	suspect := slices.ContainsFunc(changed, func(c change) bool { return c.now.inPlace })
	isNew := generation != w.reported || reload
	if !isNew && (len(cut) > 0 || suspect && quiet < QuietPeriod) {
		return u, false
	}
	w.reported, w.waiting = generation, true
	if confirmed := reload && quiet >= QuietPeriod; len(cut) > 0 && !confirmed {
		return rules.Update{Set: rules.Set{Generation: generation}, Problems: cut}, true
	}
	u.Set, u.Problems = parse(s, w.cfg)
	if u.Problems.HasErrors() {
		w.waiting = false
		return u, true
	}
	if suspect {
		u.Lost = rules.Lost(w.active, u.Set)
		u.Held = len(u.Lost) > 0 && quiet < QuietPeriod
	}
	if !u.Held {
		w.waiting, w.activeFiles, w.active = false, s, u.Set
	}
	return u, true
}
