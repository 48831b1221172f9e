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

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// QuietPeriod is how long an older copy of the file has to stay unchanged before Reload takes it.
const QuietPeriod = 10 * time.Second

// clockStep is longer than a tick of the clock of any file system. A younger file can change without a new time.
const clockStep = 2 * time.Second

// Watcher loads the keys of a file into a Source, and follows changes of the file. Use NewWatcher.
//
// A missing file, or one with mistakes, changes nothing. A file is an older copy if its newest change is older than the
// newest active one, or if one of its records is older than the active one. A revoked key can be valid in it. So it is
// refused until Reload is called after it has been unchanged for QuietPeriod. If a link in the path has a new target,
// as after an update of a Kubernetes Secret, the versions are not compared.
type Watcher struct {
	poll.Loop
	path   string
	source *apikey.Source
	last   look
	taken  string // the generation that take reported last
	older  bool   // whether taken was refused as an older copy

	// Of the file of the active keys: its place, its version, and hash and length of the text before its end mark.
	place   string
	version int64
	hash    [sha256.Size]byte
	body    int
}

// Update is what a Watcher found when the file had changed.
type Update struct {
	// Generation is a short hash of the file, or of the reason why it could not be read.
	Generation string
	// Err is why the file was refused; the previous keys stay active. It holds neither a key nor a hash.
	Err error
}

// look is the state of the file at one poll.
type look struct {
	place      string // the path with all links resolved
	info       fs.FileInfo
	content    []byte            // nil after it was taken
	end        int               // the position of the end mark in content, -1 without one
	hash       [sha256.Size]byte // of the text before the end mark
	err        error
	generation string
	at         time.Time // of this poll
	since      time.Time // of the first poll in a row with this generation
}

// NewWatcher returns a watcher of the file at a path, which fills a source.
func NewWatcher(path string, source *apikey.Source) *Watcher {
	return &Watcher{Loop: poll.NewLoop(), path: path, source: source}
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

// Run follows the file until the context is done. It calls update once for each change of the file's content, also for
// a faulty one. Run may be called once.
func (w *Watcher) Run(ctx context.Context, update func(Update)) {
	w.Loop.Run(ctx, func(requested bool) {
		before := w.last.generation
		if w.look(); w.last.generation != before && !requested {
			return
		}
		if u, isNew := w.take(requested); isNew {
			update(u)
		}
	})
}

// look polls the file. It reads the file only if it may have changed.
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

// take activates the keys of the last look, if the file has changed. isNew is false if there is nothing to report.
func (w *Watcher) take(requested bool) (u Update, isNew bool) {
	l := &w.last
	u = Update{Generation: l.generation, Err: l.err}
	again := w.older && (requested || l.place != w.place)
	if l.generation == w.taken && !again {
		l.content = nil
		return u, false
	}
	w.taken, w.older = l.generation, false
	if u.Err == nil {
		u.Err = w.activate(requested && time.Since(l.since) >= QuietPeriod)
	}
	if !w.older {
		l.content = nil
	}
	return u, true
}

// activate makes the keys of the last look the active ones. An older copy needs confirmation.
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

// isOlder returns what is older in a file than in the active keys, "" for nothing. It compares records as well, because
// an older copy can have a newer change.
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

// added returns the records of the lines that were appended to the file of the active keys. ok is false if the whole
// file has to be read. That is so if the file does not begin with the text of that one. It is also so if a line has a
// mistake, because its message needs the line number, or a weak key, which must be unique in the file.
func (w *Watcher) added(text []byte, end int) (c *contents, ok bool) {
	if w.place == "" || end < w.body || sha256.Sum256(text[:w.body]) != w.hash {
		return nil, false
	}
	c, err := parseLines(w.path, text[w.body:end])
	return c, err == nil && len(c.weak) == 0
}

// when returns a version as a time.
func when(version int64) string { return time.UnixMicro(version).UTC().Format(time.RFC3339Nano) }
