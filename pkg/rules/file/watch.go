package file

import (
	"context"
	"slices"
	"time"

	"github.com/extauthz/extauthz/pkg/rules"
)

// pollInterval is how often a watched directory is read. A change is taken when two readings in a row agree, so it
// takes effect within two intervals. The kernel's notices of changes are not used: they miss what happens on
// network file systems and behind the links of a ConfigMap.
const pollInterval = 500 * time.Millisecond

// QuietPeriod is how long files have to stay unchanged before a suspicious change of them can take effect: see
// Watcher.
const QuietPeriod = 10 * time.Second

// Watcher follows the rule files of a directory. A file may be cut off: its writer is slow, or the disk is full. So
//
//   - a text that is the beginning of the one in force is refused. After QuietPeriod, Reload takes it all the same;
//   - rules of files that were written to in their places, or are gone, are held until the files have been unchanged
//     for QuietPeriod, whatever happens to other files, if they restrict access less than those in force, or lack
//     more than half of a domain's limits. A file that was renamed into place was complete before, and is not held.
//
// A directory that was replaced in one step (by a swap of the link ..data, or of a link to it) is trusted. Use
// NewWatcher.
type Watcher struct {
	dir     string
	cfg     Config
	reload  chan struct{}
	last    snapshot  // the last look at the files
	inForce snapshot  // of the rules in force; the zero value when none are
	active  rules.Set // these rules
	told    string    // the generation that was reported last
	waiting bool      // that one was held, or refused as cut off
	// suspects name the files that may be cut off, with their texts; they have been the same since then.
	suspects string
	since    time.Time
}

var _ rules.Source = (*Watcher)(nil)

// NewWatcher returns a watcher of a directory.
func NewWatcher(dir string, cfg Config) *Watcher {
	return &Watcher{dir: dir, cfg: cfg, reload: make(chan struct{}, 1)}
}

// Load reads the rules of the directory. Run then reports what differs from them; without Load, it reports whatever is
// there.
func (w *Watcher) Load() (rules.Set, rules.Problems) {
	s := w.read()
	for range 3 { // until two readings agree, so that a start in the middle of an update does not see half of it
		before := s.generation()
		if s = w.read(); s.generation() == before {
			break
		}
	}
	set, problems := parse(s, w.cfg)
	w.told = set.Generation
	if !problems.HasErrors() {
		w.inForce, w.active = s, set
	}
	return set, problems
}

func (w *Watcher) read() snapshot {
	s := readDirectory(w.dir, w.cfg)
	s.markWritten(w.last)
	w.last = s
	if suspects := suspects(changes(w.inForce, s)); suspects != w.suspects {
		w.suspects, w.since = suspects, time.Now()
	}
	return s
}

// Reload makes Run read the directory at once, as on SIGHUP, without waiting for a second reading that agrees. It
// also takes a text that was refused as cut off, when that has been unchanged for QuietPeriod. It does not block,
// may be called from any goroutine, and does nothing when nothing has changed.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is waiting already
	}
}

// Run calls update once for each change of the files' contents until the context is done, from its own goroutine,
// one call after the other. It is called for errors as well, once for each faulty state: also when the directory
// has vanished or has no rule files any more. When what was in force comes back after that, it is called again. Run
// may be called once.
func (w *Watcher) Run(ctx context.Context, update func(rules.Update)) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	previous, since := w.told, time.Now()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-w.reload:
			asked = true
		case <-ticker.C:
		}
		s := w.read()
		generation := s.generation()
		agrees := generation == previous
		if !agrees {
			previous, since = generation, time.Now()
		}
		if !agrees && !asked {
			continue
		}
		if u, report := w.take(s, generation, time.Since(since), asked); report {
			update(u)
		}
	}
}

// take judges the files when their contents have settled. quiet is how long they have been the same. asked says that
// Reload asked for it, by which the operator says that the files are as they should be. report is false when there is
// nothing to report.
func (w *Watcher) take(s snapshot, generation string, quiet time.Duration, asked bool) (u rules.Update, report bool) {
	if generation == w.active.Generation {
		w.inForce = s // the same texts, perhaps in other files
	}
	if generation == w.told && !w.waiting {
		return u, false
	}
	if w.suspects != "" { // a change of another file does not keep them waiting
		quiet = max(quiet, time.Since(w.since))
	}
	changed := changes(w.inForce, s) // none any more when the directory was replaced by one with the same texts
	cut := cutOff(changed)
	suspect := slices.ContainsFunc(changed, func(c change) bool { return c.now.inPlace })
	isNew := generation != w.told || asked
	if !isNew && (len(cut) > 0 || suspect && quiet < QuietPeriod) {
		return u, false
	}
	w.told, w.waiting = generation, true
	if confirmed := asked && quiet >= QuietPeriod; len(cut) > 0 && !confirmed {
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
		w.waiting, w.inForce, w.active = false, s, u.Set
	}
	return u, true
}
