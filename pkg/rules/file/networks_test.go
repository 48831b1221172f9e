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

// withPartners is a rule file that names the prefix file partners.txt.
const withPartners = "domain: shop\nnetworks: {partners: {file: partners.txt}}\ndescriptors:\n  - key: a\n" +
	"    network: partners\n    rate_limit: {unit: minute, requests_per_unit: 1}\n"

// TestWatcherFollowsPrefixFiles: a mistake in a prefix file, or its absence, leaves the previous rules active.
func TestWatcherFollowsPrefixFiles(t *testing.T) {
	dir := newDirectory(t, map[string]string{"shop.yaml": withPartners, "partners.txt": "192.0.2.0/24\n"})
	partners := filepath.Join(dir, "partners.txt")
	rename := func(content string) func() {
		return func() {
			write(t, filepath.Join(dir, "..new"), content)
			if err := os.Rename(filepath.Join(dir, "..new"), partners); err != nil {
				t.Fatal(err)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(dir, Config{})
		if set, problems := w.Load(t.Context()); len(problems) > 0 || len(set.Networks["partners"]) != 1 {
			t.Fatal(set, problems)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reports := make(chan string, 100)
		go w.Run(ctx, func(u rules.Update) {
			report := fmt.Sprint(u.Set.Networks["partners"])
			for _, p := range u.Problems {
				report = fmt.Sprintf("%s:%d: %s", filepath.Base(p.File), p.Line, p.Message)
			}
			reports <- report
		})
		for _, step := range []struct {
			name   string
			change func()
			want   string
		}{
			{"a prefix is added", rename("192.0.2.0/24\r\n198.51.100.7\r\n"), "[192.0.2.0/24 198.51.100.7/32]"},
			{"only the beginning is left", func() { write(t, partners, "192.0.2.0/24\r\n") },
				"partners.txt:1: the file ends here, but the active rules continue for 1 line: it takes effect when it has " +
					"been unchanged for 10s, because it may still be being written, [192.0.2.0/24]"},
			{"a mistake", rename("192.0.2.0/24\n192.0.2.0/33\n"), "partners.txt:2: `192.0.2.0/33` is no prefix"},
			{"the file is gone", func() { remove(t, partners) },
				"shop.yaml:2: there is no file `partners.txt` in the directory of this file"},
			{"the file is back", rename("203.0.113.0/24\n"), "[203.0.113.0/24]"},
			{"only a comment", rename("# none\n"), "[]"},
			{"empty", rename(""), "partners.txt:1: there is nothing in the prefix file"},
		} {
			step.change()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			var got []string
			for len(reports) > 0 {
				got = append(got, <-reports)
			}
			if diff := cmp.Diff(step.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("%s: %s", step.name, diff)
			}
		}
	})
}

// TestPrefixFilesBesideNotes: with COMPATIBILITY=strict, notes are left out and prefix files are not.
func TestPrefixFilesBesideNotes(t *testing.T) {
	dir := t.TempDir()
	swapConfigMap(t, dir, "..1", map[string]string{
		"shop.yaml": withPartners, "partners.txt": "192.0.2.0/24\n", "NOTES.txt": "Ask the platform team.\n",
	})
	set, problems := NewWatcher(dir, Config{LeaveOutNotes: true, IgnoreDotfiles: true}).Load(t.Context())
	if got := fmt.Sprint(set.Networks); got != "map[partners:[192.0.2.0/24]]" {
		t.Error(got)
	}
	if len(problems) != 1 || filepath.Base(problems[0].File) != "NOTES.txt" || !bool(problems[0].Warning) {
		t.Errorf("got %v, want a warning about NOTES.txt", problems)
	}
}

// TestCheckReadsPrefixFiles: `extauthz check FILE` reads the prefix files beside it. For standard input, the command
// names them.
func TestCheckReadsPrefixFiles(t *testing.T) {
	dir := newDirectory(t, map[string]string{"shop.yaml": withPartners, "partners.txt": "192.0.2.0/24\n"})
	t.Chdir(dir)
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{filepath.Join(dir, "shop.yaml")}, ""},
		{[]string{"shop.yaml"}, ""},
		{[]string{"."}, ""},
		{[]string{"-", "partners.txt"}, ""},
		{[]string{"-"}, "there is no file `partners.txt` in the directory of this file"},
	} {
		set, problems := Check(c.paths, strings.NewReader(withPartners), Config{})
		if c.want == "" && (len(problems) > 0 || len(set.Networks["partners"]) != 1) ||
			c.want != "" && (len(problems) != 1 || problems[0].Message != c.want) {
			t.Errorf("%v: got %v and %v, want %q", c.paths, set.Networks, problems, c.want)
		}
	}
}
