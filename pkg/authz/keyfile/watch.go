package keyfile

import (
	"context"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// QuietPeriod is how long an older copy of the file has to stay unchanged before Reload takes it.
const QuietPeriod = 10 * time.Second

// Watcher loads the keys of a file into a Source, and follows changes of the file. Use NewWatcher.
//
// A missing file, or one with mistakes, changes nothing. A file is an older copy if its newest change is older than the
// newest active one, or if one of its records is older than the active one. A revoked key can be valid in it. So it is
// refused until Reload is called after it has been unchanged for QuietPeriod. If a link in the path has a new target,
// as after an update of a Kubernetes Secret, the versions are not compared.
type Watcher struct {
	follower *poll.Follower
	path     string
	source   *apikey.Source
	taken    string // the generation that take reported last
	older    bool   // whether taken was refused as an older copy

	// place and version are those of the file of the active keys.
	place   string
	version int64
}

// Update is what a Watcher found when the file had changed.
type Update struct {
	// Generation is a short hash of the file, or of the reason why it could not be read.
	Generation string
	// Err is why the file was refused; the previous keys stay active. It holds neither a key nor a hash.
	Err error
}

// NewWatcher returns a watcher of the file at a path, which fills a source.
func NewWatcher(path string, source *apikey.Source) *Watcher {
	return &Watcher{follower: poll.NewOf(maxSize, path), path: path, source: source}
}

// Load reads the file for the first time.
func (w *Watcher) Load() error {
	u, _ := w.take(&w.follower.Load().Files[0], false)
	return u.Err
}

// Reload makes Run read the file at once, as on SIGHUP.
func (w *Watcher) Reload() { w.follower.Reload() }

// Run calls update once for each change of the file, also to a faulty one, until ctx is done. It may be called once.
func (w *Watcher) Run(ctx context.Context, update func(Update)) {
	w.follower.Run(ctx, func(r poll.Reading, requested bool) {
		if u, isNew := w.take(&r.Files[0], requested); isNew {
			update(u)
		}
	})
}

// take activates the keys of the file, if it has changed. isNew is false if there is nothing to report.
func (w *Watcher) take(f *poll.File, requested bool) (u Update, isNew bool) {
	u = Update{Generation: f.Generation(), Err: unread(f.Name, f.Content, f.Err)}
	isNew = u.Generation != w.taken || w.older && (requested || f.Place != w.place)
	if isNew {
		w.taken, w.older = u.Generation, false
		if u.Err == nil {
			u.Err = w.activate(f, requested && time.Since(f.Since) >= QuietPeriod)
		}
	}
	if !w.older {
		w.follower.Forget() // an older copy can still be confirmed
	}
	return u, isNew
}

// activate makes the keys of the file the active ones. An older copy needs confirmation.
func (w *Watcher) activate(f *poll.File, confirmed bool) error {
	c, err := parse(w.path, f.Content)
	if err != nil {
		return err
	}
	if what := w.isOlder(c); what != "" && f.Place == w.place && !confirmed {
		w.older = true
		return fmt.Errorf("%s: this is an older copy: %s\n"+
			"      = restore the newer file: in the older one, a revoked key can be valid\n"+
			"      = to take the older one, send SIGHUP after it has been unchanged for %s",
			w.path, what, QuietPeriod)
	}
	w.source.Restore(c.records)
	w.place, w.version = f.Place, c.version
	return nil
}

// isOlder returns what is older in a file than the active keys: its last change, or a record; "" for nothing.
func (w *Watcher) isOlder(c *contents) string {
	if c.version < w.version {
		return fmt.Sprintf("its last change is from %s, and the last change of the active keys is from %s",
			when(c.version), when(w.version))
	}
	if r, active := w.source.Older(c.records); r != nil {
		return fmt.Sprintf("key %q is from %s, and the active one is from %s", r.ID, when(r.Version), when(active))
	}
	return ""
}

// when returns a version as a time.
func when(version int64) string { return time.UnixMicro(version).UTC().Format(time.RFC3339Nano) }
