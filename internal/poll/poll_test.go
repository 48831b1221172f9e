package poll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRun reads at intervals, and reports readings that agree. A request is reported at once; requests before a reading
// count as one. Nothing is read after the context is done.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		follower, start := NewOf(3, path), time.Now()
		follower.Load()
		follower.Reload()
		follower.Reload()
		var got []string
		go follower.Run(ctx, func(r Reading, requested bool) {
			got = append(got, fmt.Sprintf("%v %t %s", time.Since(start), requested, r.Files[0].Content))
		})
		time.Sleep(600 * time.Millisecond)
		write("four")
		time.Sleep(600 * time.Millisecond)
		write("five")
		follower.Reload()
		time.Sleep(100 * time.Millisecond)
		write("six")
		time.Sleep(1200 * time.Millisecond)
		cancel()
		time.Sleep(10 * Interval)
		synctest.Wait()
		want := []string{"0s true one", "500ms false one", "1.2s true five", "2s false six", "2.5s false six"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

// TestUnchangedFileIsNotRead: a file that was written long ago is not read at each poll, and its next change is found.
func TestUnchangedFileIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write := func(content string) error { return os.WriteFile(path, []byte(content), 0o600) }
	age := func(by time.Duration) error { return os.Chtimes(path, time.Time{}, time.Now().Add(-by)) }
	did := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	did(write("text"), age(time.Hour))
	follower := NewOf(100, path)
	isRead := func() bool {
		before := follower.last.Files
		r, _ := follower.Read()
		return len(before) == 0 || !r.Files[0].at.Equal(before[0].at)
	}
	if !isRead() || isRead() {
		t.Error("an unchanged file is read again")
	}
	for what, alter := range map[string]func(){
		"another time": func() { did(age(time.Minute)) },
		"another size": func() { did(write("a text"), age(time.Hour)) },
		"another file": func() { did(os.Remove(path), write("texts"), age(time.Hour)) },
	} {
		isRead()
		if alter(); !isRead() {
			t.Errorf("%s: it is not read again", what)
		}
	}
	did(age(-time.Hour)) // newer than clockStep, however slow the machine is
	isRead()
	if !isRead() {
		t.Error("a file that was just written is not read again: it can change within the same tick of the clock")
	}
}
