package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A full disk cuts off a file in place, at any line end. No such beginning becomes active.
func TestCutFileNeverBecomesActive(t *testing.T) {
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
					got := updates(QuietPeriod + 2*time.Second)
					if len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
						t.Errorf("cut after %d of %d bytes: the watcher reported %q, want one error", end, len(whole), got)
					}
				}
			})
		})
	}
}

// before returns the text before a mark, from the rest.
func before(text, mark string) string { return strings.SplitN(text, mark, 2)[0] }
func from(text, mark string) string   { return strings.TrimPrefix(text, before(text, mark)) }

// guarded is a rule file whose limits and access rules can be lost.
const guarded = `domain: shop
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 1, name: per-b}}
  - key: c
    descriptors:
      - {key: d, value: x, rate_limit: {unit: minute, requests_per_unit: 1}}
authz:
  credentials: [{api_key: {header: x-api-key}}]
  access:
    - {path: {prefix: /public/}, require: open}
    - {hosts: [admin.example.com], methods: [DELETE], path: {template: "/v1/users/{id}"}, scopes: [admin, write]}
    - {path: {exact: /internal}, require: denied}
  refused:
    - actions: [{remote_address: {}}]
  limits:
    - actions: [{method: {}}]
    - actions: [{host: {}}]
    - actions: [{credential: {field: owner}}]
`

// Each case changes the file in place. A change that loses access rules, or more than half of the limits, is held until
// the file has been unchanged for 10 s. Every other change takes effect within a second.
func TestInPlaceChangeThatLosesRulesIsHeld(t *testing.T) {
	const atOnce = "shop after 1s"
	const deleteUsers = "access rule hosts=admin.example.com methods=DELETE template=/v1/users/{id} " +
		"of domain `shop` (DIR/a.yaml:12)"
	const internal = "access rule exact=/internal of domain `shop` (DIR/a.yaml:13)"
	for _, c := range []struct {
		name, from, to string // an edit of the file
		lost           string // "": it takes effect at once
	}{
		{name: "another number", from: "requests_per_unit: 1,", to: "requests_per_unit: 2,"},
		{name: "another window", from: "{unit: minute", to: "{unit: hour"},
		{name: "one limit of three", from: "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n", to: ""},
		{
			name: "two limits of three", from: before(from(guarded, "  - {key: b"), "authz:"), to: "",
			lost: "limit shop.b (per-b), limit shop.c.d_x",
		},
		{name: "the value of a descriptor", from: "value: x", to: "value: y"},
		{name: "one more access rule", from: "  refused:\n", to: "    - {path: {exact: /more}}\n  refused:\n"},
		{
			name: "another order", from: "prefix: /public/}, require: open}\n",
			to: "prefix: /public/}, require: open}\n    - {path: {exact: /internal}, require: denied}\n",
		},
		{name: "one more scope", from: "[admin, write]", to: "[admin, audit, write]"},
		{name: "denied instead of a credential", from: ", scopes: [admin, write]}", to: ", require: denied}"},
		{
			name: "an access rule", from: "    - {path: {exact: /internal}, require: denied}\n", to: "",
			lost: internal,
		},
		{
			name: "the requirement of an access rule", from: "exact: /internal}, require: denied}", to: "exact: /internal}}",
			lost: internal,
		},
		{name: "a scope", from: "[admin, write]", to: "[admin]", lost: deleteUsers},
		{name: "a method", from: "methods: [DELETE]", to: "methods: [PUT]", lost: deleteUsers},
		{
			name: "authz", from: from(guarded, "authz:"), to: "# no authz\n",
			lost: "all of `authz` of domain `shop` (DIR/a.yaml:8)",
		},
		{
			name: "two limits of authz", from: "    - actions: [{method: {}}]\n    - actions: [{host: {}}]\n", to: "",
			lost: "2 of 3 `limits` in `authz` of domain `shop`",
		},
		{
			name: "the limit of refused requests", from: "  refused:\n    - actions: [{remote_address: {}}]\n", to: "",
			lost: "1 of 1 `refused` in `authz` of domain `shop`",
		},
		{name: "one limit of authz", from: "    - actions: [{method: {}}]\n", to: ""},
		{
			name: "the credentials", from: "credentials: [{api_key: {header: x-api-key}}]", to: "anonymous: allow",
			lost: "`api_key` in `credentials` of domain `shop` (DIR/a.yaml:8), " +
				"`anonymous: deny` of domain `shop` (DIR/a.yaml:8)",
		},
		{
			name: "one more kind of credentials", from: "credentials: [{api_key: {header: x-api-key}}]",
			to: "credentials: [{api_key: {header: x-api-key}}, {mtls: {principals: [spiffe://example.org/*]}}]",
		},
		{
			name: "requests without a credential", from: "  access:\n", to: "  absent: {pass: true}\n  access:\n",
			lost: "`absent: {pass: false}` of domain `shop` (DIR/a.yaml:8)",
		},
		{
			name: "preflights", from: "  access:\n", to: "  preflight: allow\n  access:\n",
			lost: "`preflight: deny` of domain `shop` (DIR/a.yaml:8)",
		},
		{
			name: "unsafe paths", from: "  access:\n", to: "  unsafe_paths: allow\n  access:\n",
			lost: "`unsafe_paths: deny` of domain `shop` (DIR/a.yaml:8)",
		},
		{
			name: "an open rule before the others", from: "  access:\n",
			to: "  access:\n    - {path: {prefix: /}, require: open}\n",
			lost: deleteUsers + ": prefix=/ (DIR/a.yaml:11) is before it, " +
				internal + ": prefix=/ (DIR/a.yaml:11) is before it",
		},
		{
			name: "a rule with other scopes before others", from: "    - {hosts: [admin",
			to: "    - {hosts: [\"*.example.com\"], scopes: [read]}\n    - {hosts: [admin",
			lost: deleteUsers + ": hosts=*.example.com (DIR/a.yaml:12) is before it, " +
				internal + ": hosts=*.example.com (DIR/a.yaml:12) is before it",
		},
		{
			name: "an open path with a slash before the same path, denied", from: "  access:\n",
			to:   "  access:\n    - {path: {exact: /internal/}, require: open}\n",
			lost: internal + ": exact=/internal/ (DIR/a.yaml:11) is before it",
		},
		{
			name: "an open rule for other paths before the others", from: "  access:\n",
			to: "  access:\n    - {path: {prefix: /internals}, require: open}\n",
		},
		{
			name: "an open rule for another method", from: "    - {hosts",
			to: "    - {methods: [GET], path: {prefix: /v1/}, require: open}\n    - {hosts",
		},
		{
			name: "an open rule for another host", from: "    - {hosts",
			to: "    - {hosts: [www.example.com], path: {prefix: /v1/}, require: open}\n    - {hosts",
		},
		{
			name: "an open rule after the others", from: "  refused:\n",
			to: "    - {path: {prefix: /}, require: open}\n  refused:\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := strings.Replace(guarded, c.from, c.to, 1)
			if changed == guarded {
				t.Fatalf("the file has no %q", c.from)
			}
			dir := newDirectory(t, map[string]string{"a.yaml": guarded})
			synctest.Test(t, func(t *testing.T) {
				updates := watch(t, dir)
				write(t, filepath.Join(dir, "a.yaml"), changed)
				got := strings.ReplaceAll(strings.Join(updates(time.Minute), "; "), dir, "DIR")
				want := atOnce
				if c.lost != "" {
					want = "shop held after 1s without " + c.lost + "; shop after 10.5s without " + c.lost
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The same loss takes effect at once in files that were complete before they were put in place.
func TestReplacedFileIsTrusted(t *testing.T) {
	half := before(guarded, "  - key: c")
	asConfigMap := func(t *testing.T, dir, content string) {
		swapConfigMap(t, dir, "..1", map[string]string{"a.yaml": content, "b.yaml": ruleFile("more")})
	}
	for _, c := range []struct {
		name, content  string
		mount, replace func(t *testing.T, dir, content string)
	}{
		{"a rename", strings.Replace(half, "per-b", "each-b", 1), writeFile, renameFile},
		{"the swap of a link", strings.Replace(half, "per-b", "each-b", 1), linkFile, linkFile},
		{"the swap of a ConfigMap", strings.Replace(half, "per-b", "each-b", 1), asConfigMap, swapFile},
		{"the swap of a ConfigMap to the beginning of its text", half, asConfigMap, swapFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.mount(t, dir, guarded)
			synctest.Test(t, func(t *testing.T) {
				updates := watch(t, dir)
				c.replace(t, dir, c.content)
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

// clearings are the ways in which programs remove a file before they write a new one with its name.
var clearings = map[string]func(t *testing.T, path string){
	"the old file is deleted": remove,
	"the old file is kept under another name": func(t *testing.T, path string) {
		t.Helper()
		rename(t, path, path+"~")
	},
}

// A new file with the same name may be incomplete while it is written. It is not trusted, as if written in place.
func TestNewFileThatIsWrittenSlowlyIsNotTrusted(t *testing.T) {
	for name, clear := range clearings {
		for what, content := range map[string]string{
			"cut": before(guarded, "  access:"), "held": "# The second edition.\n" + before(guarded, "  access:"),
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				dir := newDirectory(t, map[string]string{"a.yaml": guarded})
				file := filepath.Join(dir, "a.yaml")
				synctest.Test(t, func(t *testing.T) {
					updates := watch(t, dir)
					clear(t, file)
					time.Sleep(3 * time.Second)
					write(t, file, content)
					for _, u := range updates(5 * time.Second) {
						if strings.HasPrefix(u, "shop after") {
							t.Errorf("%s: the incomplete file is active", u)
						}
					}
					write(t, file, "# The second edition.\n"+guarded)
					got := updates(2 * time.Second)
					if len(got) != 1 || !strings.HasPrefix(got[0], "shop after") || strings.Contains(got[0], "without") {
						t.Errorf("the whole file: %q, want it active", got)
					}
				})
			})
		}
	}
}

// A program may rename a file that it could not complete. The beginning of the active text is always refused.
func TestCutFileIsAlwaysRefused(t *testing.T) {
	half := before(guarded, "  access:")
	for name, put := range map[string]func(t *testing.T, dir, content string){
		"a rename": renameFile, "a link": linkFile, "in place": writeFile,
		"a new file": func(t *testing.T, dir, content string) {
			remove(t, filepath.Join(dir, "a.yaml"))
			writeFile(t, dir, content)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDirectory(t, map[string]string{"a.yaml": guarded})
			synctest.Test(t, func(t *testing.T) {
				w := NewWatcher(dir, Config{})
				updates := run(t, dir, w)
				put(t, dir, half)
				if got := updates(time.Minute); len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
					t.Errorf("%q, want one error", got)
				}
				w.Reload()
				if got := updates(time.Minute); len(got) != 1 || !strings.HasPrefix(got[0], "shop after 0s") {
					t.Errorf("after a reload: %q, want the rules of the file", got)
				}
			})
		})
	}
}

// A file with a mistake is renamed into place, and then fixed in place. The fix is not trusted.
func TestFixInPlaceOfARefusedFileIsNotTrusted(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": guarded})
	file := filepath.Join(dir, "a.yaml")
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		renameFile(t, dir, "# The second edition.\n"+strings.Replace(guarded, "prefix:", "prefx:", 1))
		if got := updates(3 * time.Second); len(got) != 1 || !strings.Contains(got[0], "prefx") {
			t.Fatalf("the mistake: %q, want an error", got)
		}
		write(t, file, "# The second edition.\n"+before(guarded, "  access:"))
		write(t, filepath.Join(dir, "..swap"), "of an editor") // the directory changes as well
		if got := updates(3 * time.Second); len(got) != 1 || !strings.HasPrefix(got[0], "shop held after 1s") {
			t.Errorf("fixed in place, but cut: %q, want it held", got)
		}
	})
}

// The loss of a deleted rule file is held: its writer may be about to create a new one.
func TestDeletedFileIsHeld(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": ruleFile("one"), "b.yaml": ruleFile("two")})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		remove(t, filepath.Join(dir, "b.yaml"))
		want := []string{"one held after 1s without limit two.a", "one after 10.5s without limit two.a"}
		if diff := cmp.Diff(want, updates(time.Minute)); diff != "" {
			t.Error(diff)
		}
	})
}

// A renamed file loses nothing.
func TestRenamedFileLosesNothing(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": guarded})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		rename(t, filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"))
		if diff := cmp.Diff([]string{"shop after 1s"}, updates(time.Minute)); diff != "" {
			t.Error(diff)
		}
	})
}

// A slow writer changes the first line of the file, so that its text is not the beginning of the active text. No text
// that lacks an access rule or most limits becomes active before the file is complete.
func TestSlowWriterLosesNothing(t *testing.T) {
	next := "# The second edition.\n" + guarded
	for _, pause := range []time.Duration{300 * time.Millisecond, 2 * time.Second, 9 * time.Second} {
		dir := newDirectory(t, map[string]string{"a.yaml": guarded})
		synctest.Test(t, func(t *testing.T) {
			updates := watch(t, dir)
			for _, end := range lineEnds(next) {
				write(t, filepath.Join(dir, "a.yaml"), next[:end])
				time.Sleep(pause)
			}
			write(t, filepath.Join(dir, "a.yaml"), next)
			all := updates(time.Minute)
			for _, u := range all {
				if strings.Contains(u, "without") && !strings.Contains(u, "held") {
					t.Errorf("with pauses of %v: %s", pause, u)
				}
			}
			if last := all[len(all)-1]; !strings.HasPrefix(last, "shop after") {
				t.Errorf("with pauses of %v, the last update is %q, want the whole file", pause, last)
			}
		})
	}
}

// With SIGHUP the operator confirms the file. That counts after the file has been unchanged for QuietPeriod.
func TestReloadAcceptsACutFileAfterQuietPeriod(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": guarded})
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(dir, Config{})
		updates := run(t, dir, w)
		half := before(guarded, "  access:")
		write(t, filepath.Join(dir, "a.yaml"), half)
		const refused = "DIR/a.yaml:9:1: the file ends here, but the active rules continue for 10 lines: " +
			"it was cut off, or it is still being written"
		w.Reload()
		if diff := cmp.Diff([]string{refused + " after 0s"}, updates(5*time.Second)); diff != "" {
			t.Errorf("a reload directly after the write: %s", diff)
		}
		w.Reload()
		if diff := cmp.Diff([]string{refused + " after 0s"}, updates(5*time.Second)); diff != "" {
			t.Errorf("a reload after 5 s: %s", diff)
		}
		if got := updates(time.Minute); len(got) > 0 {
			t.Errorf("without a reload: %q, want nothing", got)
		}
		w.Reload()
		got := updates(time.Minute)
		if len(got) != 1 || !strings.HasPrefix(got[0], "shop after 0s without access rule prefix=/public/ of") {
			t.Errorf("a reload after that: %q, want the rules of the file", got)
		}
	})
}

// Changes of other files do not extend the wait of a held file, nor that of SIGHUP for a cut file.
func TestOtherFilesDoNotProlongAHold(t *testing.T) {
	for name, text := range map[string]string{
		"held": strings.Replace(guarded, "    - {path: {exact: /internal}, require: denied}\n", "", 1),
		"cut":  before(guarded, "  access:"),
	} {
		dir := newDirectory(t, map[string]string{"a.yaml": guarded, "b.yaml": ruleFile("b")})
		synctest.Test(t, func(t *testing.T) {
			w := NewWatcher(dir, Config{})
			updates := run(t, dir, w)
			write(t, filepath.Join(dir, "a.yaml"), text)
			var last []string
			for i := range 4 {
				next := filepath.Join(dir, "..new")
				write(t, next, fmt.Sprintf("# edition %d\n%s", i, ruleFile("b")))
				longAgo(t, next)
				rename(t, next, filepath.Join(dir, "b.yaml"))
				if last = updates(4 * time.Second); name == "cut" {
					w.Reload()
					last = append(last, updates(0)...)
				}
			}
			if !slices.ContainsFunc(last, func(u string) bool { return strings.HasPrefix(u, "shop b after") }) {
				t.Errorf("%s: the last updates after 16 s are %q, want the rules of both files", name, last)
			}
		})
	}
}

// A file may lose white space and comments at its end.
func TestCutWhiteSpaceAndCommentsAreAccepted(t *testing.T) {
	text := strings.TrimRight(guarded, "\n")
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
			"it was cut off, or it is still being written"
		want := []string{"DIR/a.yaml" + end + ", DIR/b.yaml" + end + " after 1s"}
		if diff := cmp.Diff(want, updates(time.Minute)); diff != "" {
			t.Error(diff)
		}
	})
}

// watch follows a directory until the bubble ends. updates waits, and returns the updates since its previous call: the
// domains of the rules or the mistakes, the time since that call, and the lost restrictions.
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
	var list []string
	since := time.Now()
	go w.Run(ctx, func(u rules.Update) {
		report := domainNames(u.Set)
		var mistakes []string
		for _, p := range u.Problems {
			mistakes = append(mistakes, fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message))
		}
		if u.Problems.HasErrors() {
			report = strings.ReplaceAll(strings.Join(mistakes, ", "), dir, "DIR")
		}
		if u.Held {
			report += " held"
		}
		report += fmt.Sprintf(" after %v", time.Since(since))
		if len(u.Lost) > 0 {
			report += " without " + strings.Join(u.Lost, ", ")
		}
		list = append(list, report)
	})
	return func(wait time.Duration) []string {
		synctest.Wait()
		time.Sleep(wait)
		synctest.Wait()
		all := list
		list, since = nil, time.Now()
		return all
	}
}

// A held text takes effect when the operator renames the same text into place.
func TestRenameOfAHeldTextActivatesIt(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": guarded})
	content := "# The second edition.\n" + before(guarded, "  access:")
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		write(t, filepath.Join(dir, "a.yaml"), content)
		if got := updates(3 * time.Second); len(got) != 1 || !strings.HasPrefix(got[0], "shop held after") {
			t.Fatalf("written in place: %q, want it held", got)
		}
		renameFile(t, dir, content)
		if got := updates(2 * time.Second); len(got) != 1 || !strings.HasPrefix(got[0], "shop after") {
			t.Errorf("renamed into place: %q, want the rules of the file", got)
		}
	})
}

// A file is replaced by one with the same text, which is not reported. The new file is then cut in place.
func TestCutOfAFileThatWasReplacedByItsCopy(t *testing.T) {
	dir := newDirectory(t, map[string]string{"a.yaml": guarded})
	synctest.Test(t, func(t *testing.T) {
		updates := watch(t, dir)
		write(t, filepath.Join(dir, "..copy"), guarded)
		rename(t, filepath.Join(dir, "..copy"), filepath.Join(dir, "a.yaml"))
		if got := updates(3 * time.Second); len(got) > 0 {
			t.Errorf("the copy: %q, want nothing", got)
		}
		write(t, filepath.Join(dir, "a.yaml"), before(guarded, "  access:"))
		if got := updates(time.Minute); len(got) != 1 || !strings.Contains(got[0], "the file ends here") {
			t.Errorf("cut: %q, want one error", got)
		}
	})
}
