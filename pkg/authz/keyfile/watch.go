package keyfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// pollInterval is how often a file is looked at. A change is taken when two looks in a row agree. The kernel's notices
// of changes are not used: they miss changes on network file systems and behind links of a Kubernetes Secret.
const pollInterval = 500 * time.Millisecond

// QuietPeriod is how long an older copy of the file has to stay unchanged before Reload takes it.
const QuietPeriod = 10 * time.Second

// clockStep is more than the clock of any file system takes to advance. A file that is younger can change unnoticed.
const clockStep = 2 * time.Second

// Watcher keeps the keys of a Source those of the file at a path. Use NewWatcher.
//
// A file with mistakes changes nothing, and neither does one that is gone. A file with an older record of a key than the
// active one, or whose newest change is older, is an older copy, in which a revoked key can be valid: it is refused
// until Reload is called when it has been unchanged for QuietPeriod. If a link on the way to the file leads elsewhere than before, as after
// an update of a Secret of Kubernetes, the versions are not compared.
type Watcher struct {
	path   string
	source *apikey.Source
	reload chan struct{}
	last   look
	told   string // the generation that was reported last
	older  bool   // that one was refused as an older copy

	// Of the active keys: where their file was, its version, and hash and length of what stood before its end mark.
	place   string
	version int64
	hash    [sha256.Size]byte
	body    int
}

// Update is what a Watcher found when the file had changed.
type Update struct {
	// Generation is a short hash of the file, or of the reason why it could not be read.
	Generation string
	// Err says why the file was refused; the previous keys stay active. It holds neither a key nor a hash.
	Err error
}

// look is one look at the file.
type look struct {
	place      string // the path with all links followed
	info       fs.FileInfo
	content    []byte            // nil after it was taken
	end        int               // where the end mark begins in it, -1 without one
	hash       [sha256.Size]byte // of what stands before the end mark
	err        error
	generation string
	at         time.Time // when it was
	since      time.Time // the first look in a row with this generation
}

// NewWatcher returns a watcher of the file at a path, which fills a source.
func NewWatcher(path string, source *apikey.Source) *Watcher {
	return &Watcher{path: path, source: source, reload: make(chan struct{}, 1)}
}

// Load reads the file for the first time.
func (w *Watcher) Load() error {
	w.look()
	for range 3 { // a change can be under way
		before := w.last.generation
		if w.look(); w.last.generation == before {
			break
		}
	}
	u, _ := w.take(false)
	return u.Err
}

// Reload makes Run read the file at once, as on SIGHUP. It does not block, and any goroutine may call it.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is waiting already
	}
}

// Run follows the file until the context is done. It calls update after each change of the file's content, once for
// each faulty state as well, from its own goroutine. Run may be called once.
func (w *Watcher) Run(ctx context.Context, update func(Update)) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-w.reload:
			asked = true
		case <-ticker.C:
		}
		before := w.last.generation
		if w.look(); w.last.generation != before && !asked {
			continue
		}
		if u, isNew := w.take(asked); isNew {
			update(u)
		}
	}
}

// look looks at the file. It reads it only if it can be another one than before.
func (w *Watcher) look() {
	last := w.last
	l := look{at: time.Now()}
	if target, err := filepath.EvalSymlinks(w.path); err == nil {
		l.place = target
	}
	info, err := os.Stat(w.path)
	if err == nil && last.info != nil && os.SameFile(info, last.info) && info.Size() == last.info.Size() &&
		info.ModTime().Equal(last.info.ModTime()) && last.at.Sub(info.ModTime()) > clockStep {
		w.last.place = l.place
		return
	}
	h := sha256.New()
	if l.content, l.info, l.err = read(w.path); l.err != nil {
		_, _ = h.Write([]byte(l.err.Error())) // a hash never fails
	}
	l.end = findEnd(l.content)
	body := max(0, l.end)
	_, _ = h.Write(l.content[:body])
	h.Sum(l.hash[:0])
	_, _ = h.Write(l.content[body:])
	l.generation = hex.EncodeToString(h.Sum(nil)[:6])
	if l.since = l.at; l.generation == last.generation {
		l.since = last.since
	}
	w.last = l
}

// take judges the last look; isNew is false if there is nothing to report.
func (w *Watcher) take(asked bool) (u Update, isNew bool) {
	l := &w.last
	u = Update{Generation: l.generation, Err: l.err}
	again := w.older && (asked || l.place != w.place)
	if l.generation == w.told && !again {
		l.content = nil
		return u, false
	}
	w.told, w.older = l.generation, false
	if u.Err == nil {
		u.Err = w.activate(asked && time.Since(l.since) >= QuietPeriod)
	}
	if !w.older {
		l.content = nil
	}
	return u, true
}

// activate makes the keys of the last look the active ones. An older copy needs to be confirmed.
func (w *Watcher) activate(confirmed bool) error {
	text, end := w.last.content, w.last.end
	if added, ok := w.added(text, end); ok {
		w.source.Update(added.records)
		w.version = max(w.version, added.version)
	} else {
		c, err := parse(w.path, text)
		if err != nil {
			return err
		}
		if what := w.isOlder(c); what != "" && w.last.place == w.place && !confirmed {
			w.older = true
			return fmt.Errorf("%s: this is an older copy: %s\n"+
				"      = restore the newer file: in the older one, a revoked key can be valid\n"+
				"      = to take the older one, send SIGHUP after it has been unchanged for %s",
				w.path, what, QuietPeriod)
		}
		w.source.Restore(c.records)
		w.version = c.version
	}
	w.place, w.body, w.hash = w.last.place, end, w.last.hash
	return nil
}

// isOlder says what of a file is older than the active keys, "" for nothing. An older copy can have a newer change.
func (w *Watcher) isOlder(c *contents) string {
	if c.version < w.version {
		return fmt.Sprintf("its last change is of %s, and that of the active keys is of %s", when(c.version), when(w.version))
	}
	if r, active := w.source.Older(c.records); r != nil {
		return fmt.Sprintf("key %q is of %s, and the active one is of %s", r.ID, when(r.Version), when(active))
	}
	return ""
}

// added returns the records of the lines that a file has more than the one that the active keys were read from. ok is
// false if it is another file than that and some more lines, or if all of it has to be read for another reason: a mistake needs the
// number of its line, and whether a weak key is there twice depends on all lines.
func (w *Watcher) added(text []byte, end int) (c *contents, ok bool) {
	if w.place == "" || end < w.body || sha256.Sum256(text[:w.body]) != w.hash {
		return nil, false
	}
	c, err := parseLines(w.path, text[w.body:end])
	return c, err == nil && len(c.weak) == 0
}

// when is a version for people.
func when(version int64) string { return time.UnixMicro(version).UTC().Format(time.RFC3339Nano) }
