package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/rules"
)

// lineEnds returns the lengths of a text up to each line end except the last.
func lineEnds(text string) (ends []int) {
	for i := range strings.TrimRight(text, "\n") {
		if text[i] == '\n' {
			ends = append(ends, i+1)
		}
	}
	return ends
}

// A slow writer writes a file in place again, and pauses after each line for less than QuietPeriod. No beginning of the
// active text becomes active.
func TestSlowWriterOfTheSameTextLosesNothing(t *testing.T) {
	for _, name := range []string{
		"../../../internal/service/sample/sample.yaml", "../../../deploy/compose/rules/shop.yaml",
		"../../../test/e2e/testdata/policy.yaml",
	} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		whole := string(content)
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir := newDirectory(t, map[string]string{"a.yaml": whole})
			synctest.Test(t, func(t *testing.T) {
				updates := watch(t, dir)
				for _, end := range lineEnds(whole) {
					write(t, filepath.Join(dir, "a.yaml"), whole[:end])
					got := updates(QuietPeriod - 2*time.Second)
					if len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
						t.Errorf("cut after %d of %d bytes: the watcher reported %q, want one error", end, len(whole), got)
					}
				}
				write(t, filepath.Join(dir, "a.yaml"), whole)
				if got := updates(time.Minute); len(got) != 1 || !strings.Contains(got[0], " after 1s") {
					t.Errorf("the whole file: %q, want its rules", got)
				}
			})
		})
	}
}

// before returns the text before a mark, from the rest.
func before(text, mark string) string { return strings.SplitN(text, mark, 2)[0] }
func from(text, mark string) string   { return strings.TrimPrefix(text, before(text, mark)) }

// whole is a rule file with three limits and a policy.
const whole = `domain: shop
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 1, name: per-b}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 1}}
authz:
  credentials: [{api_key: {header: x-api-key}}]
  access:
    - {path: {prefix: /public/}, require: open}
    - {path: {exact: /internal}, require: denied}
`

// A change in place takes effect within two seconds, whatever it restricts no more.
func TestChangeInPlace(t *testing.T) {
	for _, c := range []struct{ name, from, to string }{
		{"another number", "requests_per_unit: 1}", "requests_per_unit: 2}"},
		{"two limits fewer", before(from(whole, "  - {key: b"), "authz:"), ""},
		{"an access rule less", "    - {path: {prefix: /public/}, require: open}\n", ""},
		{"no credentials", "credentials: [{api_key: {header: x-api-key}}]", "anonymous: allow"},
		{"no policy, with a comment in its place", from(whole, "authz:"), "# no authz\n"},
		{"half of another edition", whole, "# The second edition.\n" + before(whole, "  - {key: c")},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := strings.Replace(whole, c.from, c.to, 1)
			dir := newDirectory(t, map[string]string{"a.yaml": whole})
			synctest.Test(t, func(t *testing.T) {
				updates := watch(t, dir)
				write(t, filepath.Join(dir, "a.yaml"), changed)
				if diff := cmp.Diff([]string{"shop after 1s"}, updates(time.Minute)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The last of three limits is deleted as docs/rules.md describes: by a copy, an edit and a rename. The new text is the
// beginning of the active one.
func TestLastLimitIsDeletedByCopyEditRename(t *testing.T) {
	limits := before(whole, "authz:")
	dir := newDirectory(t, map[string]string{"a.yaml": limits})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		next := filepath.Join(dir, "..new")
		write(t, next, limits)
		write(t, next, before(limits, "  - {key: c"))
		longAgo(t, next) // an editor takes longer than a tick of the file system's clock
		rename(t, next, filepath.Join(dir, "a.yaml"))
		if diff := cmp.Diff([]string{"shop after 1s"}, updates(time.Minute)); diff != "" {
			t.Error(diff)
		}
	})
}

// The beginning of the active text takes effect at once in files that were complete before they were put in place.
func TestReplacedFileIsTrusted(t *testing.T) {
	half := before(whole, "  - {key: c")
	asConfigMap := func(t *testing.T, dir, content string) {
		swapConfigMap(t, dir, "..1", map[string]string{"a.yaml": content, "b.yaml": ruleFile("more")})
	}
	for _, c := range []struct {
		name           string
		mount, replace func(t *testing.T, dir, content string)
	}{
		{"a rename", writeFile, renameFile},
		{"the swap of a link", linkFile, linkFile},
		{"the swap of a ConfigMap", asConfigMap, swapFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.mount(t, dir, whole)
			synctest.Test(t, func(t *testing.T) {
				updates := watch(t, dir)
				c.replace(t, dir, half)
				if diff := cmp.Diff([]string{"shop after 1s"}, updates(time.Minute)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func writeFile(t *testing.T, dir, content string) {
	t.Helper()
	write(t, filepath.Join(dir, "a.yaml"), content)
}

// renameFile puts a new a.yaml in the place of the old one.
func renameFile(t *testing.T, dir, content string) {
	t.Helper()
	next := filepath.Join(dir, "..new")
	write(t, next, content)
	longAgo(t, next)
	rename(t, next, filepath.Join(dir, "a.yaml"))
}

// linkFile makes a.yaml a link to a new file.
func linkFile(t *testing.T, dir, content string) {
	t.Helper()
	target := filepath.Join(t.TempDir(), "a.yaml")
	write(t, target, content)
	longAgo(t, target)
	if err := os.Symlink(target, filepath.Join(dir, "..link")); err != nil {
		t.Fatal(err)
	}
	rename(t, filepath.Join(dir, "..link"), filepath.Join(dir, "a.yaml"))
}

// swapFile replaces a ConfigMap by one without b.yaml.
func swapFile(t *testing.T, dir, content string) {
	t.Helper()
	swapConfigMap(t, dir, "..2", map[string]string{"a.yaml": content})
	remove(t, filepath.Join(dir, "b.yaml")) // as the kubelet does with what is no longer in it
}

// longAgo sets the time of the last write to an hour ago. The next change of the file is then later, however coarse the
// clock of the file system is.
func longAgo(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	then := info.ModTime().Add(-time.Hour) // by the real clock, not that of the bubble
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

// A program removes a file before it writes a new one with its name. The new file waits as if written in place.
func TestNewFileThatIsWrittenSlowlyWaits(t *testing.T) {
	for name, clear := range map[string]func(t *testing.T, path string){
		"the old file is deleted": remove,
		"the old file is kept under another name": func(t *testing.T, path string) {
			t.Helper()
			rename(t, path, path+"~")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDirectory(t, map[string]string{"a.yaml": whole})
			file := filepath.Join(dir, "a.yaml")
			synctest.Test(t, func(t *testing.T) {
				updates := watch(t, dir)
				clear(t, file)
				time.Sleep(3 * time.Second)
				write(t, file, before(whole, "  access:"))
				for _, u := range updates(5 * time.Second) {
					if strings.HasPrefix(u, "shop after") {
						t.Errorf("%s: the incomplete file is active", u)
					}
				}
				write(t, file, whole)
				got := updates(2 * time.Second)
				if len(got) != 1 || !strings.HasPrefix(got[0], "shop after") {
					t.Errorf("the whole file: %q, want it active", got)
				}
			})
		})
	}
}

// A file with a mistake is renamed into place, and then cut in place while the directory changes as well.
func TestChangeInTheDirectoryHidesNoWrite(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": whole})
	file := filepath.Join(dir, "a.yaml")
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		renameFile(t, dir, strings.Replace(whole, "prefix:", "prefx:", 1))
		if got := updates(3 * time.Second); len(got) != 1 || !strings.Contains(got[0], "prefx") {
			t.Fatalf("the mistake: %q, want an error", got)
		}
		write(t, file, before(whole, "  access:"))
		write(t, filepath.Join(dir, "..swap"), "of an editor")
		if got := updates(3 * time.Second); len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
			t.Errorf("cut in place: %q, want one error", got)
		}
	})
}

// A deleted rule file takes effect as any other change.
func TestDeletedFile(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": ruleFile("one"), "b.yaml": ruleFile("two")})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		remove(t, filepath.Join(dir, "b.yaml"))
		if diff := cmp.Diff([]string{"one after 1s"}, updates(time.Minute)); diff != "" {
			t.Error(diff)
		}
	})
}

// A renamed file loses nothing.
func TestRenamedFileLosesNothing(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": whole})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		rename(t, filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"))
		if diff := cmp.Diff([]string{"shop after 1s"}, updates(time.Minute)); diff != "" {
			t.Error(diff)
		}
	})
}

// The beginning of the active text waits until it has been unchanged for QuietPeriod. A reload does not shorten that.
func TestCutFileWaits(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": whole})
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(dir, Config{})
		updates := run(t, dir, w)
		write(t, filepath.Join(dir, "a.yaml"), before(whole, "  access:"))
		const waits = "DIR/a.yaml:7:1: the file ends here, but the active rules continue for 3 lines: " +
			"it takes effect when it has been unchanged for 10s, because it may still be being written"
		w.Reload()
		if diff := cmp.Diff([]string{waits + " after 0s"}, updates(5*time.Second)); diff != "" {
			t.Errorf("a reload directly after the write: %s", diff)
		}
		w.Reload()
		if got := updates(4 * time.Second); len(got) > 0 {
			t.Errorf("a reload after 5 s: %q, want nothing", got)
		}
		if diff := cmp.Diff([]string{"shop after 1s"}, updates(time.Minute)); diff != "" {
			t.Errorf("after 10 s: %s", diff)
		}
	})
}

// Changes of other files do not extend the wait of a file.
func TestOtherFilesDoNotProlongTheWait(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": whole, "b.yaml": ruleFile("b")})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		write(t, filepath.Join(dir, "a.yaml"), before(whole, "  access:"))
		var last []string
		for i := range 4 {
			next := filepath.Join(dir, "..new")
			write(t, next, fmt.Sprintf("# edition %d\n%s", i, ruleFile("b")))
			longAgo(t, next)
			rename(t, next, filepath.Join(dir, "b.yaml"))
			last = updates(4 * time.Second)
		}
		if !slices.ContainsFunc(last, func(u string) bool { return strings.HasPrefix(u, "shop b after") }) {
			t.Errorf("the last updates after 16 s are %q, want the rules of both files", last)
		}
	})
}

// A file may lose white space and comments at its end.
func TestCutWhiteSpaceAndCommentsAreAccepted(t *testing.T) {
	text := strings.TrimRight(whole, "\n")
	for _, end := range []string{"\n\n \n", "\n# the end\n", "\n  # the end", "\n\n# one\n# two\n"} {
		dir := newDirectory(t, map[string]string{"a.yaml": text + end})
		synctest.Test(t, func(t *testing.T) {
			updates := watch(t, dir)
			for _, less := range []string{end[:len(end)-1], ""} {
				write(t, filepath.Join(dir, "a.yaml"), text+less)
				if diff := cmp.Diff([]string{"shop after 1s"}, updates(time.Minute)); diff != "" {
					t.Errorf("the end %q is cut to %q: %s", end, less, diff)
				}
			}
		})
	}
}

// Each file is checked by itself, and all cut files are named.
func TestEachFileThatWasCutIsNamed(t *testing.T) {
	one, two := ruleFile("one")+"  - key: b\n", ruleFile("two")+"  - key: b\n"
	dir := newDirectory(t, map[string]string{"a.yaml": one, "b.yaml": two, "c.yaml": ruleFile("three")})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		write(t, filepath.Join(dir, "a.yaml"), ruleFile("one"))
		write(t, filepath.Join(dir, "b.yaml"), ruleFile("two"))
		write(t, filepath.Join(dir, "c.yaml"), ruleFile("four"))
		const end = ":4:1: the file ends here, but the active rules continue for 1 line: " +
			"it takes effect when it has been unchanged for 10s, because it may still be being written"
		want := []string{"DIR/a.yaml" + end + ", DIR/b.yaml" + end + " after 1s", "one two four after 10.5s"}
		if diff := cmp.Diff(want, updates(time.Minute)); diff != "" {
			t.Error(diff)
		}
	})
}

// watch follows a directory until the bubble ends. updates waits, and returns the updates since its previous call: the
// domains of the rules or the mistakes, and the time since that call.
func watch(t *testing.T, dir string) (updates func(time.Duration) []string) {
	t.Helper()
	return run(t, dir, NewWatcher(dir, Config{}))
}

func run(t *testing.T, dir string, w *Watcher) (updates func(time.Duration) []string) {
	t.Helper()
	if _, problems := w.Load(t.Context()); problems.HasErrors() {
		t.Fatal(problems)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var mu sync.Mutex
	var list []string
	since := time.Now()
	go w.Run(ctx, func(u rules.Update) {
		mu.Lock()
		defer mu.Unlock()
		report := domainNames(u.Set)
		var mistakes []string
		for _, p := range u.Problems {
			mistakes = append(mistakes, fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message))
		}
		if u.Problems.HasErrors() {
			report = strings.ReplaceAll(strings.Join(mistakes, ", "), dir, "DIR")
		}
		list = append(list, fmt.Sprintf("%s after %v", report, time.Since(since)))
	})
	return func(wait time.Duration) []string {
		synctest.Wait()
		time.Sleep(wait)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		all := list
		list, since = nil, time.Now()
		return all
	}
}

// A text that waits takes effect when the operator renames the same text into place.
func TestRenameOfATextThatWaits(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": whole})
	half := before(whole, "  access:")
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		write(t, filepath.Join(dir, "a.yaml"), half)
		if got := updates(3 * time.Second); len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
			t.Fatalf("written in place: %q, want it to wait", got)
		}
		renameFile(t, dir, half)
		if got := updates(2 * time.Second); len(got) != 1 || !strings.HasPrefix(got[0], "shop after") {
			t.Errorf("renamed into place: %q, want the rules of the file", got)
		}
	})
}

// A file is replaced by one with the same text, which is not reported. The new file is then cut in place.
func TestCutOfAFileThatWasReplacedByItsCopy(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": whole})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		write(t, filepath.Join(dir, "..copy"), whole)
		rename(t, filepath.Join(dir, "..copy"), filepath.Join(dir, "a.yaml"))
		if got := updates(3 * time.Second); len(got) > 0 {
			t.Errorf("the copy: %q, want nothing", got)
		}
		write(t, filepath.Join(dir, "a.yaml"), before(whole, "  access:"))
		if got := updates(5 * time.Second); len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
			t.Errorf("cut: %q, want one error", got)
		}
	})
}
