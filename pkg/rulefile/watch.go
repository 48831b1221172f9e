package rulefile

import (
	"context"
	"time"
)

// pollInterval is how often a watched directory is read. A change is taken when two readings in a row agree, so it takes effect
// within two intervals. The kernel's notices of changes are not used: they miss what happens on network file systems and
// behind the links of a ConfigMap.
const pollInterval = 500 * time.Millisecond

// Update is what a Watcher found when the rule files had changed.
type Update struct {
	// Rules are the new rules. When Problems has errors it has no domains and the rules before it stay in force; its
	// Generation names the faulty files then.
	Rules Rules
	// Problems are the mistakes in the files, or why they could not be read.
	Problems Problems
}

// Watcher follows the rule files of a directory. Use NewWatcher.
type Watcher struct {
	dir    string
	cfg    Config
	taken  string // the generation it began with
	reload chan struct{}
}

// NewWatcher returns a watcher of the directory that loaded were loaded from; it reports what differs from them. The zero Rules
// make it report whatever is there.
func NewWatcher(dir string, cfg Config, loaded Rules) *Watcher {
	return &Watcher{dir: dir, cfg: cfg, taken: loaded.Generation, reload: make(chan struct{}, 1)}
}

// Reload makes Run read the directory at once, as on SIGHUP, without waiting for a second reading that agrees. It does not
// block, may be called from any goroutine, and does nothing when nothing has changed.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is waiting already
	}
}

// Run calls update once for each change of the files' contents until the context is done, from its own goroutine, one call
// after the other. It is called for errors as well, once for each faulty state: also when the directory has vanished or has no
// rule files any more. When what was in force comes back after that, it is called again. Run may be called once.
func (w *Watcher) Run(ctx context.Context, update func(Update)) {
	read := func() snapshot { return readDirectory(w.dir, w.cfg) }
	follow(ctx, w.taken, w.reload, read, func(s snapshot) {
		rules, problems := parse(s, w.cfg)
		update(Update{Rules: rules, Problems: problems})
	})
}

// follow reads until the context is done and calls changed for what differs from what was taken before: when two readings in a
// row agree, or at once after a reload.
func follow(ctx context.Context, taken string, reload <-chan struct{}, read func() snapshot, changed func(snapshot)) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	previous := taken
	for {
		settled := false
		select {
		case <-ctx.Done():
			return
		case <-reload:
			settled = true
		case <-ticker.C:
		}
		s := read()
		generation := s.generation()
		if generation != taken && (settled || generation == previous) {
			taken = generation
			changed(s)
		}
		previous = generation
	}
}
