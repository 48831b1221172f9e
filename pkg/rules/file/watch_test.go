package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/rules"
)

// watched runs a test in a synctest bubble, with a watcher of a directory. log returns the reports of the watcher since
// its previous call: the domains, or "error", and the time since that call.
func watched(t *testing.T, files map[string]string, test func(dir string, w *Watcher, log func() string)) {
	dir := newDirectory(t, files)
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(dir, Config{})
		if _, problems := w.Load(t.Context()); problems.HasErrors() {
			t.Fatal(problems)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var reports []string
		since := time.Now()
		go w.Run(ctx, func(u rules.Update) {
			report := domainNames(u.Set)
			if u.Problems.HasErrors() {
				report = "error"
			}
			reports = append(reports, fmt.Sprintf("%s after %v", report, time.Since(since)))
		})
		test(dir, w, func() string {
			synctest.Wait()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			report := strings.Join(reports, ", ")
			reports, since = nil, time.Now()
			return report
		})
	})
}

func TestWatcher(t *testing.T) {
	one, two := ruleFile("one"), ruleFile("two") // each lacks the domain of the other
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"nothing changes", func(*testing.T, string) {}, ""},
		{"a file is written in place", func(t *testing.T, dir string) {
			writeFile(t, dir, two)
		}, "two after 1s"},
		{"a file is renamed into place", func(t *testing.T, dir string) {
			renameFile(t, dir, two)
		}, "two after 1s"},
		{"a file is added", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "b.yaml"), two)
		}, "one two after 1s"},
		{"the same text is written again", func(t *testing.T, dir string) { writeFile(t, dir, one) }, ""},
		{"an editor leaves its swap file", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".a.yaml.swp"), "x")
		}, ""},
		{"a file gets a mistake", func(t *testing.T, dir string) { writeFile(t, dir, "domain: [") }, "error after 1s"},
		{"the only file is deleted", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "a.yaml"))
		}, "error after 1s"},
		{"the directory is deleted", func(t *testing.T, dir string) { remove(t, dir) }, "error after 1s"},
		{"a file is half written for a moment", func(t *testing.T, dir string) {
			time.Sleep(300 * time.Millisecond)
			write(t, filepath.Join(dir, "a.yaml"), two[:len(two)/2])
			time.Sleep(500 * time.Millisecond) // longer than one interval between readings
			write(t, filepath.Join(dir, "a.yaml"), two)
		}, "two after 1.5s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			watched(t, map[string]string{"a.yaml": one}, func(dir string, _ *Watcher, log func() string) {
				c.change(t, dir)
				if diff := cmp.Diff(c.want, log()); diff != "" {
					t.Error(diff)
				}
				if again := log(); again != "" {
					t.Errorf("reported again: %s", again)
				}
			})
		})
	}
}

func TestWatcherReportsThatErrorsAreOver(t *testing.T) {
	watched(t, map[string]string{"a.yaml": ruleFile("one")}, func(dir string, _ *Watcher, log func() string) {
		for _, step := range []struct{ content, want string }{
			{"domain: [", "error after 1s"},
			{"domain: {", "error after 1s"},
			{ruleFile("one"), "one after 1s"},
		} {
			write(t, filepath.Join(dir, "a.yaml"), step.content)
			if diff := cmp.Diff(step.want, log()); diff != "" {
				t.Errorf("after %q: %s", step.content, diff)
			}
		}
	})
}

func TestReloadDoesNotWait(t *testing.T) {
	watched(t, map[string]string{"a.yaml": ruleFile("one")}, func(dir string, w *Watcher, log func() string) {
		w.Reload()
		if got := log(); got != "" {
			t.Errorf("nothing had changed, but the watcher reported %q", got)
		}
		renameFile(t, dir, ruleFile("two"))
		w.Reload()
		w.Reload()
		if diff := cmp.Diff("two after 0s", log()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWatcherWithoutLoadReportsTheFirstRules(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": ruleFile("one")})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var got []string
		NewWatcher(dir, Config{}).Run(ctx, func(u rules.Update) { got = append(got, domainNames(u.Set)) })
		if diff := cmp.Diff([]string{"one"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// Kubernetes swaps the link ..data to a new directory. Both files have the number of their generation, so a mixture is
// detected. The swaps happen at various times between the readings.
func TestWatcherNeverSeesHalfAConfigMap(t *testing.T) {
	dir := t.TempDir()
	generation := func(i int) map[string]string {
		return map[string]string{"a.yaml": ruleFile(fmt.Sprintf("a%d", i)), "b.yaml": ruleFile(fmt.Sprintf("b%d", i))}
	}
	swapConfigMap(t, dir, "..0", generation(0))
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(dir, Config{})
		_, problems := w.Load(t.Context())
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last string
		count := 0
		go w.Run(ctx, func(u rules.Update) {
			if len(u.Problems) > 0 {
				t.Error(u.Problems)
			}
			last, count = domainNames(u.Set), count+1
			var a, b int
			if _, err := fmt.Sscanf(last, "a%d b%d", &a, &b); err != nil || a != b {
				t.Errorf("half of one generation and half of another: %q", last)
			}
		})
		for i := 1; i <= 50; i++ {
			swapConfigMap(t, dir, fmt.Sprintf("..%d", i), generation(i))
			time.Sleep(time.Duration(i%7)*170*time.Millisecond + 2*time.Second)
			synctest.Wait()
			if want := fmt.Sprintf("a%d b%d", i, i); last != want {
				t.Errorf("2 s after swap %d the rules are %q, want %q", i, last, want)
			}
		}
		if count != 50 {
			t.Errorf("%d updates for 50 swaps", count)
		}
	})
}

// swapConfigMap writes files as the kubelet does: it writes them to a new directory, and then moves the link ..data to
// it. The directory itself has only links through ..data.
func swapConfigMap(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		write(t, filepath.Join(dir, version, name), content)
		err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
		if err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	if old != "" {
		remove(t, filepath.Join(dir, old))
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}
