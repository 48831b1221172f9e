package keyfile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

func newSecret(t testing.TB) *apikey.Secret {
	t.Helper()
	secret, err := apikey.NewSecret("a server secret of a test", "")
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// keyOf returns the key of an id. It always returns the same key.
func keyOf(id string) string {
	body := "ea_" + id + "_" + strings.Repeat("x", 32)
	sum, digits := crc32.ChecksumIEEE([]byte(body)), [6]byte{}
	for i := len(digits) - 1; i >= 0; i, sum = i-1, sum/62 {
		digits[i] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[sum%62]
	}
	return body + string(digits[:])
}

func record(t testing.TB, id, owner string) apikey.Record {
	t.Helper()
	return apikey.Record{ID: id, Hash: newSecret(t).Hash(keyOf(id)), Owner: owner}
}

func revoke(r *apikey.Record) error { r.Disabled = true; return nil }

// newFile makes a file with the keys aaaaaaaa, bbbbbbbb, which is revoked, and cccccccc, and returns its path.
func newFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.jsonl")
	keys := []apikey.Record{record(t, "aaaaaaaa", "alice"), record(t, "bbbbbbbb", "bob"), record(t, "cccccccc", "carol")}
	if err := Add(path, keys...); err != nil {
		t.Fatal(err)
	}
	if err := Change(path, "bbbbbbbb", revoke); err != nil {
		t.Fatal(err)
	}
	return path
}

func content(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// keysOf names the keys of some records: "alice, bob (revoked)".
func keysOf(records []apikey.Record) string {
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.Owner
		if r.Disabled {
			names[i] += " (revoked)"
		}
	}
	return strings.Join(names, ", ")
}

func loaded(t testing.TB, path string) string {
	t.Helper()
	records, err := Load(path)
	if err != nil {
		t.Error(err)
	}
	return keysOf(records)
}

// TestChangesAreAppended: a change leaves all lines where they are, and keeps the file's mode and links.
func TestChangesAreAppended(t *testing.T) {
	path := newFile(t)
	link := filepath.Join(t.TempDir(), "link.jsonl")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	before := strings.TrimSuffix(content(t, path), endMark+"\n")
	if lines := strings.Count(before, "\n"); lines != 4 {
		t.Errorf("%d lines, want 3 keys and 1 change:\n%s", lines, before)
	}
	if err := Add(link, record(t, "dddddddd", "dan")); err != nil {
		t.Fatal(err)
	}
	added, isLonger := strings.CutPrefix(content(t, link), before)
	if !isLonger || strings.Count(added, "\n") != 2 || !strings.HasSuffix(added, "}\n"+endMark+"\n") {
		t.Errorf("the file does not end with one line more:\n%s", content(t, path))
	}
	if diff := cmp.Diff("alice, bob (revoked), carol, dan", loaded(t, link)); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link after a change: %v, %v", info, err)
	}
}

// TestOutdatedLinesAreRemoved: a file never has more outdated lines than others, and the newest record of each key
// stays.
func TestOutdatedLinesAreRemoved(t *testing.T) {
	path := newFile(t)
	for i := range 20 {
		rename := func(r *apikey.Record) error { r.Owner = fmt.Sprint("alice", i); return nil }
		if err := Change(path, "aaaaaaaa", rename); err != nil {
			t.Fatal(err)
		}
		c, err := parse(path, []byte(content(t, path)))
		if outdated := c.lines - len(c.records); err != nil || outdated > len(c.records) {
			t.Errorf("%d of %d lines are outdated, %v", outdated, c.lines, err)
		}
		if diff := cmp.Diff(fmt.Sprintf("alice%d, bob (revoked), carol", i), keysOf(c.records)); diff != "" {
			t.Error(diff)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestChangesAreRefused(t *testing.T) {
	path := newFile(t)
	weak := apikey.Record{ID: "demo", Hash: newSecret(t).Hash("demo"), Owner: "demo", Weak: true}
	if err := Add(path, weak); err != nil {
		t.Fatal(err)
	}
	again := weak
	again.ID = "demo2"
	before := content(t, path)
	mistake := errors.New("a mistake")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"an id that is taken": {Add(path, record(t, "dddddddd", "dan"), record(t, "aaaaaaaa", "eve")),
			`the id "aaaaaaaa" already`},
		"the same id twice": {Add(path, record(t, "dddddddd", "dan"), record(t, "dddddddd", "dan")),
			`the id "dddddddd" already`},
		"a weak key that is taken": {Add(path, again), `"demo" and "demo2" are the same weak key`},
		"a record with a mistake":  {Add(path, record(t, "dddddddd", " dan")), "`owner` cannot be ` dan`"},
		"a change of no key":       {Change(path, "dddddddd", revoke), "no key with this id"},
		"a change that fails": {Change(path, "aaaaaaaa", func(*apikey.Record) error { return mistake }),
			"a mistake"},
		"a change of a missing file": {Change(path+"2", "aaaaaaaa", revoke), "no such file"},
		"a change that makes a mistake": {
			Change(path, "aaaaaaaa", func(r *apikey.Record) error { r.Owner = ""; return nil }), "without `owner`"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
	}
	if diff := cmp.Diff(before, content(t, path)); diff != "" {
		t.Errorf("the file has changed: %s", diff)
	}
}

// TestCutFilesAreRefused: a file is cut at each byte, with the bytes that a crash of the machine may append. Neither
// the service nor `extauthz keys` takes it for a complete one, and the message contains the remedy.
func TestCutFilesAreRefused(t *testing.T) {
	path := newFile(t)
	whole := content(t, path)
	for cut := range len(whole) - 1 {
		for _, rest := range []string{"", "\n", "\x00\x00\x00\x00", "\n\x00\x00"} {
			text := whole[:cut] + rest
			if strings.TrimSpace(text) == strings.TrimSpace(whole) {
				continue
			}
			if c, err := parse(path, []byte(text)); err == nil {
				t.Errorf("cut after %d bytes, and then %q: %s", cut, rest, keysOf(c.records))
			}
		}
	}
	torn := strings.TrimSuffix(whole, endMark+"\n") + `{"id":"dddddddd","ha`
	for name, c := range map[string]struct{ text, want string }{
		"in a line":     {torn, "put " + endMark + " in the place of line 5"},
		"at a line end": {strings.TrimSuffix(whole, endMark+"\n"), "add " + endMark + " as line 5"},
		"in the mark":   {strings.TrimSuffix(whole, "\":true}\n"), "put " + endMark + " in the place of line 5"},
	} {
		write(t, path, c.text)
		_, loadErr := Load(path)
		for _, err := range []error{loadErr, Change(path, "aaaaaaaa", revoke), Add(path, record(t, "dddddddd", "dan"))} {
			if err == nil || !strings.Contains(err.Error(), path+":") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("cut %s: %v, want %s", name, err, c.want)
			}
		}
		if diff := cmp.Diff(c.text, content(t, path)); diff != "" {
			t.Errorf("the file has changed: %s", diff)
		}
	}
	lines := strings.Split(torn, "\n") // the remedy of the message repairs it
	write(t, path, strings.Join(append(lines[:4:4], endMark), "\n"))
	if diff := cmp.Diff("alice, bob (revoked), carol", loaded(t, path)); diff != "" {
		t.Error(diff)
	}
}

// TestMistakes: each mistake is reported with its line, and no message shows a key or a hash.
func TestMistakes(t *testing.T) {
	hash := newSecret(t).Hash("x").String()
	line := func(id, more string) string {
		return `{"id":"` + id + `","hash":"` + hash + `","owner":"a"` + more + "}\n"
	}
	for name, c := range map[string]struct {
		text string
		want []string // "" for a file that is good
	}{
		"none":        {endMark, nil},
		"one key":     {line("aaaaaaaa", "") + endMark + "\n\n", nil},
		"empty lines": {"\n" + line("aaaaaaaa", "") + "\r\n" + endMark, nil},
		"nothing":     {"", []string{"keys.jsonl: the file is empty"}},
		"two": {line("aaaaaaaa", `,"ip":1`) + line("bbbbbbbb", "") + line("b", "") + endMark,
			[]string{
				`keys.jsonl:1: key "aaaaaaaa": not readable: json: unknown field "ip"`,
				"keys.jsonl:3: key \"b\": `id` cannot be `b`",
			}},
		"a key for its hash": {`{"id":"aaaaaaaa","hash":"ea_4Gd0kZ7b_canarycanarycanary12","owner":"a"}` + "\n" + endMark,
			[]string{`keys.jsonl:1: key "aaaaaaaa": not readable: want hmac-sha256:`}},
		"an unknown unit": {`{"limit":{"unit":"canary"},"id":"aaaaaaaa"}` + "\n" + endMark,
			[]string{`keys.jsonl:1: key "aaaaaaaa": not readable: limit.unit: unknown unit: want one of second, minute`}},
		"no object": {"[]\n" + endMark, []string{"keys.jsonl:1: not readable: want a JSON object"}},
		"a key for its id": {line("ea_4Gd0kZ7b_canarycanarycanarycanarycanary12", "") + endMark,
			[]string{"`id` cannot be `ea_4Gd0kZ7b_****"}},
		"a key as a field": {line("aaaaaaaa", `,"ea_4Gd0kZ7b_canarycanarycanarycanarycanary12":1`) + endMark,
			[]string{"unknown field \"ea_4Gd0kZ7b_****"}},
		"two records in a line": {strings.TrimSpace(line("aaaaaaaa", "")) + line("bbbbbbbb", "") + endMark,
			[]string{"keys.jsonl:1: not readable: text after the record"}},
		"an end in the middle": {line("aaaaaaaa", "") + endMark + "\n" + line("bbbbbbbb", "") + endMark,
			[]string{"keys.jsonl:2: only the last line can be"}},
		"no id": {`{"hash":"` + hash + `","owner":"a"}` + "\n" + endMark,
			[]string{"an API key without `id`"}},
		"a weak key twice": {line("demo", `,"weak":true`) + line("demo2", `,"weak":true`) + endMark,
			[]string{`keys.jsonl:2: the keys "demo" and "demo2" are the same weak key`}},
		"more lines than any file of keys has": {strings.Repeat("\n", maxSize/4) + endMark,
			[]string{"keys.jsonl:1000001: a file has at most 1000000 lines"}},
		"wrong all over": {strings.Repeat("x\n", 30) + endMark,
			[]string{"keys.jsonl:20: not readable", "… and 10 more"}},
	} {
		_, err := parse("keys.jsonl", []byte(c.text))
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
		}
		if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), hash)) {
			t.Errorf("%s: a key or a hash is shown: %v", name, err)
		}
	}
}

func TestUnusualFiles(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	write(t, large, "")
	if err := os.Truncate(large, maxSize+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "`extauthz keys create` makes the file",
		dir:                        "not a regular file",
		large:                      "larger than 128 MB",
	} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestVersionsGrow: a change has a larger version than all before it, also after the clock was set back. Other records
// keep their versions.
func TestVersionsGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.jsonl")
	future := time.Now().AddDate(10, 0, 0).UnixMicro()
	ahead := record(t, "aaaaaaaa", "alice")
	ahead.Version = future
	lines, err := encode([]apikey.Record{ahead})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(lines)+endMark)
	if err := Add(path, record(t, "bbbbbbbb", "bob")); err != nil {
		t.Fatal(err)
	}
	c, err := parse(path, []byte(content(t, path)))
	if err != nil || c.version != future+1 {
		t.Errorf("version %d after %d, %v", c.version, future, err)
	}
	if len(c.records) != 2 || c.records[0].Version != future || c.records[1].Version != future+1 {
		t.Errorf("records %+v, want two with the versions %d and one more", c.records, future)
	}
}

// FuzzParse: no content makes parse panic, and each key that it returns is valid. A good file stays good when a key is
// added.
func FuzzParse(f *testing.F) {
	f.Add([]byte(content(f, newFile(f))))
	f.Add([]byte("keys:\n"))
	f.Add([]byte("{}\n" + endMark))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parse("f", text)
		if err != nil {
			return
		}
		for _, r := range c.records {
			if err := r.Err(); err != nil {
				t.Errorf("a record with mistakes passes: %v", err)
			}
		}
		if _, taken := c.index["NEWKEY00"]; taken {
			return
		}
		path := filepath.Join(t.TempDir(), "f")
		write(t, path, string(text))
		if err := Add(path, record(t, "NEWKEY00", "new")); err != nil {
			t.Fatal(err)
		}
		if again, err := Load(path); err != nil || len(again) != len(c.records)+1 {
			t.Errorf("%d keys after one was added to %d: %v", len(again), len(c.records), err)
		}
	})
}
