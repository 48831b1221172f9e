package rulefile

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// TestKeyFiles reads each case of testdata/keys: NAME.yaml is a file of API keys, NAME.want what is said about it.
func TestKeyFiles(t *testing.T) {
	for _, path := range archives(t, "keys") {
		goldenCases(t, path, func(f File) string {
			keys, problems := ParseKeys(f)
			var b strings.Builder
			if len(problems) > 0 {
				b.WriteString(problems.Error() + "\n")
			}
			if strings.Contains(b.String(), "canary") {
				t.Errorf("a key is shown:\n%s", &b)
			}
			for _, r := range keys.Records {
				if err := r.Check(); err != nil {
					t.Errorf("a record with mistakes passes: %v", err)
				}
				data, err := r.Encode()
				fmt.Fprintf(&b, "%s %s %v\n", r.ID, data, err)
			}
			return b.String()
		})
	}
}

// TestEdits does to each case of testdata/edits what the archive is named for.
func TestEdits(t *testing.T) {
	secret, err := apikey.NewSecret("a server secret of a test", "")
	if err != nil {
		t.Fatal(err)
	}
	until := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, alter := range map[string]func(File) ([]byte, error){
		"add": func(f File) ([]byte, error) {
			return AddKey(f, apikey.Record{
				ID: "NEWKEY00", Hash: secret.Hash("new"), Owner: "true", Plan: "pro", Labels: map[string]string{"team": "a, b"},
				Scopes: []string{"read", "10"}, NotBefore: until, Expires: until.Truncate(24*time.Hour).AddDate(1, 0, 0), Created: until,
				Limit: &ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Minute, Multiplier: 2, Algorithm: 3, Burst: 20},
			})
		},
		"rotate": func(f File) ([]byte, error) {
			return ChangeKey(f, apikey.Record{ID: "4Gd0kZ7b", Hash: secret.Hash("new"), Previous: &apikey.Previous{Hash: secret.Hash("old"), ValidUntil: until}})
		},
		"disable": func(f File) ([]byte, error) {
			keys, problems := ParseKeys(f)
			i := slices.IndexFunc(keys.Records, func(r apikey.Record) bool { return r.ID == "4Gd0kZ7b" })
			if i < 0 {
				return ChangeKey(f, apikey.Record{ID: "4Gd0kZ7b"})
			}
			keys.Records[i].Disabled = true
			if problems.HasErrors() {
				t.Fatal(problems)
			}
			return ChangeKey(f, keys.Records[i])
		},
	} {
		goldenCases(t, filepath.Join("testdata", "edits", name+".txtar"), func(f File) string {
			after, err := alter(f)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			if cut := cutOff([]change{{&f, &File{Name: f.Name, Content: after}}}, keyGrammar()); len(cut) > 0 {
				t.Errorf("a service would refuse the edited file: %v", cut)
			}
			return string(after) + "(end)\n"
		})
	}
}

func TestEditsKeepLineBreaksAndByteOrderMark(t *testing.T) {
	hash := "hmac-sha256:0a1b2c3d:" + strings.Repeat("A", 43)
	file := File{Name: "f", Content: []byte("\ufeffkeys:\r\n  - id: 4Gd0kZ7b\r\n    hash: " + hash + "\r\n    owner: é\r\n")}
	keys, problems := ParseKeys(file)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	keys.Records[0].Disabled = true
	after, err := ChangeKey(file, keys.Records[0])
	want := strings.Replace(string(file.Content), hash, hash+"\r\n    disabled: true", 1)
	if diff := cmp.Diff(want, string(after)); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// FuzzKeyFile: no content makes ParseKeys panic, and adding a key to a good file gives a good file with one more.
func FuzzKeyFile(f *testing.F) {
	for _, dir := range []string{"keys", "edits"} {
		for _, path := range archives(f, dir) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				f.Fatal(err)
			}
			for _, file := range archive.Files {
				f.Add(file.Data)
			}
		}
	}
	secret, err := apikey.NewSecret("a server secret of a test", "")
	if err != nil {
		f.Fatal(err)
	}
	added := apikey.Record{ID: "NEWKEY00", Hash: secret.Hash("new"), Owner: "new"}
	f.Fuzz(func(t *testing.T, content []byte) {
		file := File{Name: "f", Content: content}
		keys, problems := ParseKeys(file)
		for _, p := range problems {
			checkProblem(t, p)
		}
		for _, r := range keys.Records {
			if err := r.Check(); err != nil {
				t.Errorf("a record with mistakes passes: %v", err)
			}
		}
		after, err := AddKey(file, added)
		if err != nil {
			return
		}
		more, problems := ParseKeys(File{Name: "f", Content: after})
		if problems.HasErrors() || len(more.Records) != len(keys.Records)+1 {
			t.Errorf("%d keys and one make %d: %v\n%s", len(keys.Records), len(more.Records), problems, after)
		}
	})
}

func TestLoadKeysSaysWhatItCanNotRead(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file or directory",
		dir:                        "directory",
	} {
		keys, problems := LoadKeys(path)
		if !problems.HasErrors() || !strings.Contains(problems.Error(), want) || keys.Records != nil {
			t.Errorf("%s: %v", path, problems)
		}
	}
}

// TestKeyWatcher: good files are taken, faulty ones are reported, once each.
func TestKeyWatcher(t *testing.T) {
	hash := "hmac-sha256:0a1b2c3d:" + strings.Repeat("A", 43)
	file := func(id string) string { return "keys: [{id: " + id + ", hash: " + hash + ", owner: a}]\n" }
	dir := newDirectory(t, map[string]string{"keys.yaml": file("aaaaaaaa")})
	path := filepath.Join(dir, "keys.yaml")
	synctest.Test(t, func(t *testing.T) {
		loaded, problems := LoadKeys(path)
		if problems.HasErrors() {
			t.Fatal(problems)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		updates := make(chan string, 10)
		start := time.Now()
		w := NewKeyWatcher(path, loaded)
		go w.Run(ctx, func(u KeyUpdate) {
			what := "error"
			if !u.Problems.HasErrors() {
				what = u.Keys.Records[0].ID
			}
			// Each step takes 10 seconds.
			updates <- fmt.Sprintf("%s after %v", what, time.Since(start)%(10*time.Second))
		})
		said := func() string {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			var all []string
			for len(updates) > 0 {
				all = append(all, <-updates)
			}
			return strings.Join(all, ", ")
		}
		for _, step := range []struct {
			content, want string
			reload        bool
		}{
			{content: file("aaaaaaaa"), want: ""},
			{content: file("bbbbbbbb"), want: "bbbbbbbb after 1s"},
			{content: file("b"), want: "error after 1s"},
			{content: "", want: "error after 1s"},
			{content: file("bbbbbbbb"), want: "bbbbbbbb after 1s"},
			{content: file("cccccccc"), want: "cccccccc after 0s", reload: true},
		} {
			write(t, path, step.content)
			if step.reload {
				w.Reload()
			}
			if diff := cmp.Diff(step.want, said()); diff != "" {
				t.Errorf("after %q: %s", step.content, diff)
			}
		}
		remove(t, path)
		if diff := cmp.Diff("error after 1s", said()); diff != "" {
			t.Errorf("after the file has gone: %s", diff)
		}
	})
}
