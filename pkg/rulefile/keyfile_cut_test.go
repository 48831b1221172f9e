package rulefile

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keyFileText has a last key that is revoked, and a limit and an end of the one before it.
const keyFileText = `keys:
  - id: 4Gd0kZ7b
    hash: hmac-sha256:0a1b2c3d:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
    owner: alice
    expires: 2026-12-31
    limit: {requests_per_unit: 1, unit: minute}
  - id: 5Gd0kZ7b
    hash: hmac-sha256:0a1b2c3d:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA
    owner: bob
    disabled: true
`

// watchKeys follows a file of keys until the bubble ends. The function it returns waits, and returns the updates since it
// was last called: the keys, or the mistakes.
func watchKeys(t *testing.T, path string) (w *KeyWatcher, updates func(time.Duration) []string) {
	t.Helper()
	loaded, problems := LoadKeys(path)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w = NewKeyWatcher(path, loaded)
	var list []string
	go w.Run(ctx, func(u KeyUpdate) {
		text := u.Problems.Error()
		if !u.Problems.HasErrors() {
			text = "in force:"
			for _, r := range u.Keys.Records {
				text += fmt.Sprintf(" %s %v", r.Owner, r.Disabled)
			}
		}
		list = append(list, text)
	})
	return w, func(wait time.Duration) []string {
		synctest.Wait()
		time.Sleep(wait)
		synctest.Wait()
		said := list
		list = nil
		return said
	}
}

// A file of keys is cut at each line end. No revoked key comes back, and no key loses its end or its limit.
func TestCutKeyFileIsNeverPutInForce(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, dir, content string){
		"in place": writeFile, "a rename": renameFile,
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDirectory(t, map[string]string{"a.yaml": keyFileText})
			synctest.Test(t, func(t *testing.T) {
				_, updates := watchKeys(t, filepath.Join(dir, "a.yaml"))
				for _, end := range lineEnds(keyFileText) {
					put(t, dir, keyFileText[:end])
					got := updates(QuietPeriod + 2*time.Second)
					if len(got) != 1 || !strings.Contains(got[0], "the file ends here, and the keys in force go on for") {
						t.Errorf("cut after %d bytes: %q, want one error", end, got)
					}
				}
				put(t, dir, keyFileText)
				if diff := cmp.Diff([]string{"in force: alice false bob true"}, updates(time.Minute)); diff != "" {
					t.Errorf("the whole file again: %s", diff)
				}
			})
		})
	}
}

// The operator deletes the last key and says so, by SIGHUP, by a comment, or by replacing a Secret of Kubernetes.
func TestLastKeyCanBeDeleted(t *testing.T) {
	without := before(keyFileText, "  - id: 5")
	want := []string{"in force: alice false"}
	t.Run("SIGHUP", func(t *testing.T) {
		dir := newDirectory(t, map[string]string{"a.yaml": keyFileText})
		synctest.Test(t, func(t *testing.T) {
			w, updates := watchKeys(t, filepath.Join(dir, "a.yaml"))
			writeFile(t, dir, without)
			for _, wait := range []time.Duration{time.Second, time.Minute} {
				w.Reload()
				if got := updates(wait); len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
					t.Errorf("a reload while it may still be written: %q, want one error", got)
				}
			}
			w.Reload()
			if diff := cmp.Diff(want, updates(time.Minute)); diff != "" {
				t.Errorf("a reload after that: %s", diff)
			}
			w.Reload()
			if got := updates(time.Minute); len(got) > 0 {
				t.Errorf("one more: %q, want nothing", got)
			}
		})
	})
	t.Run("a comment", func(t *testing.T) {
		dir := newDirectory(t, map[string]string{"a.yaml": keyFileText})
		synctest.Test(t, func(t *testing.T) {
			_, updates := watchKeys(t, filepath.Join(dir, "a.yaml"))
			writeFile(t, dir, without+"  # bob has left\n")
			if diff := cmp.Diff(want, updates(time.Minute)); diff != "" {
				t.Error(diff)
			}
		})
	})
	t.Run("a Secret", func(t *testing.T) {
		dir := t.TempDir()
		swapConfigMap(t, dir, "..1", map[string]string{"a.yaml": keyFileText})
		synctest.Test(t, func(t *testing.T) {
			_, updates := watchKeys(t, filepath.Join(dir, "a.yaml"))
			swapConfigMap(t, dir, "..2", map[string]string{"a.yaml": without})
			if diff := cmp.Diff(want, updates(time.Minute)); diff != "" {
				t.Error(diff)
			}
		})
	})
}
