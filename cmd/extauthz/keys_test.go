package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/test/testenv"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata with what the code says now")

var (
	keyPattern     = regexp.MustCompile(`ea_([0-9A-Za-z]{8})_[0-9A-Za-z]{38}`)
	idPattern      = regexp.MustCompile(`The key ([0-9A-Za-z]{8}) `)
	hashPattern    = regexp.MustCompile(`hmac-sha256:[0-9a-f]{8}:[0-9A-Za-z_-]{43}`)
	secretPattern  = regexp.MustCompile(`(?m)^[0-9A-Za-z+/]{43}=$`)
	versionPattern = regexp.MustCompile(`"version":[0-9]{16}`)
	nowPattern     = regexp.MustCompile(`20[0-9]{2}-[0-9-]{5}T[0-9:]{8}Z`)
)

// transcript runs the commands of a text and returns the text with their output.
type transcript struct {
	t      *testing.T
	env    variables
	dir    string
	ids    []string
	secret []string // all keys that were shown
}

func (tr *transcript) run(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		if !isCommand {
			if strings.HasPrefix(line, "#") || line == "\n" {
				out.WriteString(line)
			}
			continue
		}
		out.WriteString(line + tr.command(strings.TrimSpace(command)))
	}
	return out.String()
}

func (tr *transcript) command(line string) string {
	line = strings.ReplaceAll(line, "$DIR", tr.dir)
	for i, id := range tr.ids {
		line = strings.ReplaceAll(line, idName(i), id)
	}
	line, input, _ := strings.Cut(line, " < ")
	words := strings.Fields(line)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "~", " ")
	}
	switch words[0] {
	case "export":
		name, value, _ := strings.Cut(words[1], "=")
		tr.env[name] = value
		return ""
	case "cat":
		content, err := os.ReadFile(filepath.Join(tr.dir, words[1]))
		if err != nil {
			tr.t.Fatal(err)
		}
		return tr.normal("| " + strings.ReplaceAll(strings.TrimSpace(string(content)), "\n", "\n| ") + "\n")
	}
	var stdout, stderr bytes.Buffer
	testenv.Setenv(tr.t, tr.env)
	p := &program{}
	p.Stdin, p.Stdout, p.Stderr = strings.NewReader(input+"\n"), &stdout, &stderr
	code := p.run(append([]string{"keys"}, words[1:]...))
	tr.secret = append(tr.secret, keyPattern.FindAllString(stdout.String(), -1)...)
	tr.noSecrets(stderr.String())
	text := stdout.String()
	for said := range strings.Lines(stderr.String()) {
		text += "2> " + said
	}
	if code != command.ExitOK {
		text += fmt.Sprintf("(exit %d)\n", code)
	}
	return tr.normal(text)
}

// idName stands for an id in a transcript; it is as long as one.
func idName(i int) string { return fmt.Sprintf("id%06d", i+1) }

func (tr *transcript) noSecrets(text string) {
	for _, key := range tr.secret {
		if strings.Contains(text, key[len("ea_12345678_"):]) {
			tr.t.Errorf("a secret is shown:\n%s", text)
		}
	}
}

// normal replaces values that differ in each run by names.
func (tr *transcript) normal(text string) string {
	for _, found := range idPattern.FindAllStringSubmatch(text, -1) {
		if id := found[1]; !slices.Contains(tr.ids, id) {
			tr.ids = append(tr.ids, id)
		}
	}
	text = keyPattern.ReplaceAllString(text, "KEY of $1")
	text = hashPattern.ReplaceAllString(text, "HASH")
	text = secretPattern.ReplaceAllString(text, "SECRET")
	text = versionPattern.ReplaceAllString(text, `"version":N`)
	text = nowPattern.ReplaceAllString(text, "TIME")
	for i, id := range tr.ids {
		text = strings.ReplaceAll(text, id, idName(i))
	}
	return strings.ReplaceAll(text, tr.dir, "DIR")
}

// TestKeysTranscript runs the commands of testdata/keys.txt. With -update it writes their output.
func TestKeysTranscript(t *testing.T) {
	path := filepath.Join("testdata", "keys.txt")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tr := &transcript{t: t, env: variables{}, dir: t.TempDir()}
	got := tr.run(string(want))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("want (-) and got (+):\n%s", diff)
	}
	content, err := os.ReadFile(filepath.Join(tr.dir, "keys.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	tr.noSecrets(string(content))
}

// keys runs a subcommand that must succeed, and returns its stdout.
func keys(t *testing.T, env variables, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t, env, "keys "+strings.Join(args, " "), "", &stdout, &stderr); code != command.ExitOK {
		t.Errorf("keys %v: exit code %d\n%s", args, code, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

// TestKeysInRedis runs all subcommands with keys in Redis.
func TestKeysInRedis(t *testing.T) {
	server := testenv.Redis(t)
	env := variables{"REDIS_URL": server.Addr, "API_KEY_SECRET": "a-server-secret-of-a-test"}
	key := keys(t, env, "create", "--owner", "alice", "--limit", "5/minute")
	id := keyPattern.FindStringSubmatch(key)[1]
	if list := keys(t, env, "list"); !strings.Contains(list, id) || !strings.Contains(list, "5/minute") ||
		strings.Contains(list, "hmac") {
		t.Errorf("the list: %s", list)
	}
	if again := keys(t, env, "rotate", id, "--grace", "7d"); again == key ||
		keyPattern.FindStringSubmatch(again)[1] != id {
		t.Errorf("the new key: %s", again)
	}
	var again, refusal bytes.Buffer
	if code := run(t, env, "keys rotate "+id, "", &again, &refusal); code != command.ExitFailed || again.Len() > 0 ||
		!strings.Contains(refusal.String(), "--end-previous") {
		t.Errorf("a second rotation within the grace: exit code %d, %q, %q", code, &again, &refusal)
	}
	keys(t, env, "rotate", id, "--end-previous")
	keys(t, env, "revoke", "--redis", id)
	if list := keys(t, env, "list", "-o", "json"); !strings.Contains(list, `"state": "disabled"`) ||
		!strings.Contains(list, "previous_valid_until") {
		t.Errorf("the list: %s", list)
	}
	server.Kill()
	var stdout, stderr bytes.Buffer
	code := run(t, env, "keys create --owner bob", "", &stdout, &stderr)
	if code != command.ExitFailed || stdout.Len() > 0 {
		t.Errorf("without Redis: exit code %d, %q, %q", code, &stdout, &stderr)
	}
}

// TestKeysAtTheSameTime checks that concurrent commands on one file lose no key and keep the mode of the file.
func TestKeysAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.jsonl")
	env := variables{"API_KEYS_FILE": path, "API_KEY_SECRET": "a-server-secret-of-a-test"}
	keys(t, env, "create", "--owner", "first")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file: %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.jsonl")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			var out bytes.Buffer
			args := fmt.Sprintf("keys create --owner owner%d --file %s", i, link)
			if code := runHere(args, "", &out, &out); code != command.ExitOK {
				t.Errorf("%s: exit code %d\n%s", args, code, &out)
			}
		})
	}
	all.Wait()
	loaded, err := keyfile.Load(link)
	if err != nil || len(loaded) != 21 {
		t.Errorf("%d keys, %v", len(loaded), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode after a change: %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link after a change: %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestKeysOfTheCLIPass(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.jsonl")
	env := variables{"API_KEYS_FILE": path, "API_KEY_SECRET": "a-server-secret-of-a-test"}
	key := keys(t, env, "create", "--owner", "alice", "--expires", "1h")
	secret, err := apikey.NewSecret("a-server-secret-of-a-test", "")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := keyfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	source := new(apikey.Source)
	source.Replace(loaded)
	who, err := apikey.New(apikey.Config{Secret: secret, Sources: []*apikey.Source{source}}).Check(key)
	if err != nil || who.Owner != "alice" {
		t.Errorf("%v, %v", who, err)
	}
}

// TestKeysAsJSON checks that with -o json each subcommand prints only JSON.
func TestKeysAsJSON(t *testing.T) {
	env := variables{"API_KEYS_FILE": filepath.Join(t.TempDir(), "keys.jsonl"),
		"API_KEY_SECRET": "a-server-secret-of-a-test"}
	ask := func(into any, args string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(t, env, "keys "+args+" -o json", "", &stdout, &stderr); code != command.ExitOK || stderr.Len() > 0 {
			t.Errorf("keys %s: exit code %d\n%s", args, code, &stderr)
		}
		if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
			t.Errorf("keys %s: %v in\n%s", args, err, &stdout)
		}
	}
	var secret map[string]string
	if ask(&secret, "secret"); len(secret["secret"]) < 32 {
		t.Errorf("secret: %v", secret)
	}
	var made, rotated, revoked madeKey
	ask(&made, "create --owner alice --plan pro --limit 5/minute")
	if found := keyPattern.FindStringSubmatch(made.Key); found == nil || found[1] != made.ID || made.Owner != "alice" ||
		made.Limit != "5/minute" {
		t.Errorf("create: %+v", made)
	}
	ask(&rotated, "rotate "+made.ID)
	if rotated.Key == made.Key || rotated.ID != made.ID || rotated.PreviousUntil.IsZero() {
		t.Errorf("rotate: %+v", rotated)
	}
	for range 2 { // the second time it is revoked already
		if ask(&revoked, "revoke "+made.ID); revoked.State != "disabled" || revoked.Key != "" {
			t.Errorf("revoke: %+v", revoked)
		}
	}
	var list []listedKey
	if ask(&list, "list"); len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("list: %+v", list)
	}
}
