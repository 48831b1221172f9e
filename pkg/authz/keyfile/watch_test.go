package keyfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// watched is a Watcher of a file in a synctest bubble.
type watched struct {
	*Watcher
	t      *testing.T
	source apikey.Source

	mu   sync.Mutex
	seen []string // the first line of each error, "" for a change
}

// watch follows a file until the bubble ends.
func watch(t *testing.T, path string) *watched {
	t.Helper()
	w := &watched{t: t}
	w.Watcher = NewWatcher(path, &w.source)
	if err := w.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go w.Run(ctx, func(u Update) {
		text := ""
		if u.Err != nil {
			text, _, _ = strings.Cut(u.Err.Error(), "\n")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, text)
	})
	return w
}

// wants waits, and fails the test unless the updates meanwhile are as wanted. A text must be in the first line of the
// error of its update; "" stands for a change that was taken.
func (w *watched) wants(what string, wait time.Duration, want ...string) {
	w.t.Helper()
	synctest.Wait()
	time.Sleep(wait)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	matches := len(w.seen) == len(want)
	for i := range min(len(want), len(w.seen)) {
		matches = matches && strings.Contains(w.seen[i], want[i]) && (want[i] == "") == (w.seen[i] == "")
	}
	if !matches {
		w.t.Errorf("%s: updates %q, want %q", what, w.seen, want)
	}
	w.seen = nil
}

// has fails the test unless the active keys are these: "alice", or "bob (revoked)".
func (w *watched) has(what string, want ...string) {
	w.t.Helper()
	keys := apikey.New(apikey.Config{Secret: newSecret(w.t), Sources: []*apikey.Source{&w.source}})
	var got []string
	for _, id := range []string{"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"} {
		who, err := keys.Check(keyOf(id))
		switch {
		case err == nil:
			got = append(got, who.Owner)
		case errors.Is(err, credential.ErrDisabled):
			got = append(got, id+" (revoked)")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s: %s", what, diff)
	}
}

// change fails the test if a change of the file failed.
func change(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func swapSecret(t *testing.T, dir, version, text string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, version, "keys.jsonl"), text)
	if err := os.Symlink(version, filepath.Join(dir, "..tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

var putFile = map[string]func(t testing.TB, path, text string){
	"in place": write,
	"a rename": func(t testing.TB, path, text string) {
		write(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	},
	"a copy with the time of its original": func(t testing.TB, path, text string) {
		write(t, path, text)
		then := time.Date(1999, 1, 1, 0, 0, 0, len(text), time.UTC) // before the time of the bubble
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	},
}

// TestCutKeyFileIsNeverActive: a file is cut at each line end and at other bytes. No revoked key becomes valid again.
func TestCutKeyFileIsNeverActive(t *testing.T) {
	for name, put := range putFile {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			whole := content(t, path)
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, path)
				for cut := 0; cut < len(whole)-1; cut += 1 + strings.IndexByte(whole[cut:], '\n') {
					for _, at := range []int{cut, cut + 7} {
						put(t, path, whole[:at])
						mistake := ":"
						if at == 0 {
							mistake = "the file is empty"
						}
						w.wants(fmt.Sprintf("cut after %d bytes", at), time.Minute, mistake)
						w.has("cut", "alice", "bbbbbbbb (revoked)", "carol")
						w.Reload()
						w.wants("SIGHUP", time.Second)
					}
				}
				put(t, path, whole)
				w.wants("the whole file again", time.Minute, "")
				w.has("the whole file again", "alice", "bbbbbbbb (revoked)", "carol")
			})
		})
	}
}

// TestOlderCopyIsRefused: a complete older copy of the file is restored, in which a key is not revoked yet. It may be
// from the time before outdated lines were removed.
func TestOlderCopyIsRefused(t *testing.T) {
	for name, put := range putFile {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			older := content(t, path)
			change(t, Change(path, "aaaaaaaa", revoke))
			change(t, Change(path, "cccccccc", func(r *apikey.Record) error { r.Plan = "pro"; return nil }))
			change(t, Change(path, "cccccccc", func(r *apikey.Record) error { r.Plan = "free"; return nil }))
			newer := content(t, path)
			if strings.HasPrefix(newer, strings.TrimSuffix(older, endMark+"\n")) {
				t.Errorf("no lines were removed:\n%s", newer)
			}
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, path)
				put(t, path, older)
				w.wants("an older copy", time.Minute, "this is an older copy: its last change is from 2")
				w.has("an older copy", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "carol")
				put(t, path, newer)
				w.wants("the newer one again", time.Minute, "")
				put(t, path, older)
				w.wants("the older one again", time.Second, "this is an older copy")
				for _, wait := range []time.Duration{time.Second, time.Minute} {
					w.Reload()
					w.wants("SIGHUP while it may still be written", wait, "this is an older copy")
				}
				w.Reload()
				w.wants("SIGHUP after that", time.Minute, "")
				w.has("SIGHUP after that", "alice", "bbbbbbbb (revoked)", "carol")
				w.Reload()
				w.wants("one more", time.Minute)
			})
		})
	}
}

// TestChangedOlderCopyIsRefused: an older copy of the file is restored, in which a key is not revoked yet. Then
// `extauthz keys` changes it, once or so often that the file is rewritten. So its last change is newer than the active
// keys.
func TestChangedOlderCopyIsRefused(t *testing.T) {
	path := newFile(t)
	older := content(t, path)
	change(t, Change(path, "aaaaaaaa", revoke))
	newer := content(t, path)
	var changed []string // outside of the bubble, where the clock is later
	for _, times := range []int{1, 20} {
		write(t, path, older)
		for range times {
			change(t, Change(path, "cccccccc", func(r *apikey.Record) error { r.Plan += "x"; return nil }))
		}
		changed = append(changed, content(t, path))
	}
	write(t, path, newer)
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		for _, text := range changed {
			write(t, path, text)
			w.wants("a changed older copy", time.Minute, `this is an older copy: key "aaaaaaaa" is from 2`)
			w.has("a changed older copy", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "carol")
			write(t, path, newer)
			w.wants("the newer one again", time.Minute, "")
		}
	})
}

// TestOlderLineIsRefused: the line of a key from before it was revoked is put at the end again.
func TestOlderLineIsRefused(t *testing.T) {
	path := newFile(t)
	line, _, _ := strings.Cut(content(t, path), "\n")
	change(t, Change(path, "aaaaaaaa", revoke))
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		write(t, path, strings.Replace(content(t, path), endMark, line+"\n"+endMark, 1))
		w.wants("an older line", time.Minute, `this is an older copy: key "aaaaaaaa" is from 2`)
		w.has("an older line", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "carol")
	})
}

// TestSecretIsTrusted: a Kubernetes Secret is replaced in one step, so its owner intended an older state.
func TestSecretIsTrusted(t *testing.T) {
	path := newFile(t)
	older := content(t, path)
	change(t, Change(path, "aaaaaaaa", revoke))
	newer := content(t, path)
	dir := t.TempDir()
	swapSecret(t, dir, "..1", newer)
	if err := os.Symlink(filepath.Join("..data", "keys.jsonl"), filepath.Join(dir, "keys.jsonl")); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, filepath.Join(dir, "keys.jsonl"))
		write(t, filepath.Join(dir, "..1", "keys.jsonl"), older)
		w.wants("written to in its place", time.Minute, "this is an older copy")
		swapSecret(t, dir, "..2", older)
		w.wants("replaced", time.Minute, "")
		w.has("replaced", "alice", "bbbbbbbb (revoked)", "carol")
	})
}

// TestWatcher: a change by `extauthz keys` or by an editor is active within a second. Mistakes change nothing.
func TestWatcher(t *testing.T) {
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		w.wants("no change", time.Minute)
		const soon = time.Second
		change(t, Change(path, "aaaaaaaa", revoke))
		w.wants("a key is revoked", soon, "")
		w.has("a key is revoked", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "carol")
		change(t, Add(path, record(t, "dddddddd", "dan")))
		w.Reload()
		w.wants("a new key, and SIGHUP", 0, "")
		w.has("a new key", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "carol", "dan")
		weak := apikey.Record{ID: "demo", Hash: newSecret(t).Hash("demo"), Owner: "demo", Weak: true}
		change(t, Add(path, weak))
		w.wants("a weak key", soon, "")
		if n := w.source.Len(); n != 5 {
			t.Errorf("%d keys, want 5", n)
		}
		for i := range 7 { // outdated lines are removed meanwhile
			change(t, Change(path, "dddddddd", func(r *apikey.Record) error { r.Owner = fmt.Sprint("dan", i); return nil }))
			w.wants("a change", soon, "")
			w.has("a change", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "carol", fmt.Sprint("dan", i))
		}
		good := content(t, path)
		write(t, path, strings.Replace(good, `"carol"`, `"caro"`, 1))
		w.wants("an edit", soon, "")
		w.has("an edit", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "caro", "dan6")
		write(t, path, strings.Replace(good, `"carol"`, `" caro"`, 1))
		w.wants("a mistake", time.Minute, "keys.jsonl:")
		write(t, path, strings.TrimSuffix(good, endMark+"\n")+"{}\n"+endMark)
		w.wants("a mistake in a new line", time.Minute,
			fmt.Sprintf("keys.jsonl:%d: an API key without `id`", strings.Count(good, "\n")))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		w.wants("it is gone", time.Minute, "no such file")
		w.has("it is gone", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "caro", "dan6")
		write(t, path, good)
		w.wants("it is back", soon, "")
		w.has("it is back", "aaaaaaaa (revoked)", "bbbbbbbb (revoked)", "carol", "dan6")
		newer := record(t, "dddddddd", "new")
		newer.Version = w.version + 1
		lines, err := encode([]apikey.Record{newer})
		change(t, err)
		write(t, path, string(lines)+endMark)
		w.wants("a new file", soon, "")
		w.has("a new file", "new")
	})
}
