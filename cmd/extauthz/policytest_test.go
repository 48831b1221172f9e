package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/cases"
	"github.com/extauthz/extauthz/test/testenv/tokens"
)

// TestTestCommand runs the commands of each archive in a directory with its files.
func TestTestCommand(t *testing.T) {
	for _, path := range cases.Archives(t, "testdata/test/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			const transcript = "transcript"
			var commands []string
			files := map[string]string{}
			for _, f := range archive.Files {
				if files[f.Name] = string(f.Data); f.Name == transcript {
					for line := range strings.Lines(string(f.Data)) {
						if strings.HasPrefix(line, "$ ") {
							commands = append(commands, strings.TrimSpace(line))
						}
					}
				}
			}
			path, _ := filepath.Abs(path)
			t.Chdir(writeFiles(t, files))
			got := ""
			for _, c := range commands {
				output, code := typed(c)
				if got += c + "\n" + output; code != 0 {
					got += fmt.Sprintf("(exit code %d)\n", code)
				}
				got += "\n"
			}
			if *update {
				cases.Set(archive, transcript, transcript, got)
				cases.Write(t, path, archive)
			}
			cases.Check(t, archive, transcript, archive.Comment, got)
		})
	}
}

// typed runs a command of a transcript, and returns what a terminal would show.
func typed(line string) (output string, code int) {
	var out bytes.Buffer
	code = runHere(strings.TrimPrefix(line, "$ extauthz "), "", &out, &out)
	return out.String(), code
}

// TestTestingPage runs the commands of docs/testing.md with its files, and compares what they print. Those of its files
// for CI succeed.
func TestTestingPage(t *testing.T) {
	page := testenv.RepoFile(t, "docs/testing.md")
	blocks := regexp.MustCompile("(?ms)^```([^`\n]*)\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	files := map[string]string{}
	var inCI []string
	for _, b := range blocks {
		if _, title, ok := strings.Cut(b[1], `title="`); ok {
			files[strings.TrimSuffix(title, `"`)] = b[2]
		}
		for _, c := range regexp.MustCompile(`(?m)(?:run|entry): (extauthz .*)`).FindAllStringSubmatch(b[2], -1) {
			inCI = append(inCI, "$ "+c[1])
		}
	}
	t.Chdir(writeFiles(t, files))
	ran := 0
	for _, b := range blocks {
		if line, want, _ := strings.Cut(b[2], "\n"); b[1] == "console" {
			if output, _ := typed(line); output != want {
				t.Errorf("%s\nprints\n%s\nthe page has\n%s", line, output, want)
			}
			ran++
		}
	}
	for _, line := range inCI {
		if output, code := typed(line); code != 0 {
			t.Errorf("%s: exit code %d\n%s", line, code, output)
		}
	}
	if ran < 2 || len(inCI) < 2 {
		t.Errorf("ran %d commands of the page and %d for CI, want 2 or more", ran, len(inCI))
	}
}

// TestFirstTestsPass writes the first tests of the rules of the sample, of docker compose, of envoy/ and of each page
// of the cookbook, and runs them. They hit each rule with a limit.
func TestFirstTestsPass(t *testing.T) {
	root := testenv.RepoRoot(t)
	rules := map[string]map[string]string{}
	for _, path := range []string{
		"internal/service/sample/sample.yaml", "deploy/compose/rules/shop.yaml", "envoy/rules/connections.yaml",
	} {
		rules[path] = map[string]string{"rules/rules.yaml": testenv.RepoFile(t, path)}
	}
	block := regexp.MustCompile("(?ms)^```[a-z]* title=\"([^\"]+)\"\n(.*?)^```$")
	pages, err := filepath.Glob(filepath.Join(root, "docs/cookbook/*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, b := range block.FindAllStringSubmatch(string(content), -1) {
			files[b[1]] = b[2]
		}
		if filepath.Base(page) != "README.md" {
			rules[filepath.Base(page)] = files
		}
	}
	for name, files := range rules {
		t.Run(name, func(t *testing.T) {
			t.Chdir(writeFiles(t, files))
			if output, code := typed("$ extauthz test --init first.test rules"); code != 0 {
				t.Fatal(output)
			}
			output, code := typed("$ extauthz test first.test")
			missed := regexp.MustCompile("no test hits [^ ]* ").FindAllString(output, -1)
			missed = slices.DeleteFunc(missed, func(m string) bool { return m == "no test hits access " })
			if first, err := os.ReadFile("first.test"); code != 0 || err != nil || len(missed) > 0 {
				t.Errorf("%v\n%s\n%s", err, first, output)
			}
		})
	}
}

// TestJUnit reads the report of names and values with all that XML must escape or cannot have.
func TestJUnit(t *testing.T) {
	const hostile = "]]><&\"' \x01\x1b[31m\u202e\ufffe end"
	t.Chdir(writeFiles(t, map[string]string{
		"rules.yaml": "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 5}}]\n",
		"a&<b>.test": "rules rules.yaml\ntest a" + hostile + "\n  limit shop tenant=a" +
			strings.ReplaceAll(hostile, " ", "") + " -> refused\ntest b\n limit shop tenant=b -> allowed\n",
		"broken.test": "rules rules.yaml\n" + hostile + "\n",
	}))
	var out bytes.Buffer
	p := &program{command.Program{Stdout: &out, Stderr: &out}}
	if code := p.run([]string{"test", "-o", "junit", "a&<b>.test", "broken.test"}); code != command.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	type failure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	var report struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Suites   []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string   `xml:"name,attr"`
				Failure *failure `xml:"failure"`
				Error   *failure `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	decoder := xml.NewDecoder(&out)
	if err := decoder.Decode(&report); err != nil {
		t.Fatal(err)
	}
	if report.Tests != 3 || report.Failures != 1 || report.Errors != 1 || len(report.Suites) != 2 ||
		report.Suites[0].Name != "a&<b>.test" || len(report.Suites[0].Cases) != 2 {
		t.Fatalf("%+v", report)
	}
	name := strings.NewReplacer("\x01", "\ufffd", "\x1b", "\ufffd", "\ufffe", "\ufffd").Replace("a" + hostile)
	first, second := report.Suites[0].Cases[0], report.Suites[0].Cases[1]
	if first.Name != name || first.Failure == nil || !strings.Contains(first.Failure.Text, "want refused") ||
		!strings.Contains(first.Failure.Message, "a&<b>.test:3: want refused, got allowed") || second.Failure != nil {
		t.Errorf("%+v\n%+v", first, second)
	}
	broken := report.Suites[1].Cases[0].Error
	if broken == nil || !strings.Contains(broken.Text, "broken.test:2:1: error") {
		t.Errorf("%+v", report.Suites[1])
	}
}

// TestClockOfTokens checks that the clock of a test is also that of tokens: they become valid and expire.
func TestClockOfTokens(t *testing.T) {
	key := tokens.ES256(t, "k")
	token := key.Claims(t, map[string]any{"iss": "https://issuer.example", "aud": "shop", "sub": "ann",
		"nbf": 1_800_000_000, "exp": 1_800_003_600}) // 2027-01-15T08:00:00Z
	t.Chdir(writeFiles(t, map[string]string{
		"jwks.json": string(key.Set(t)),
		"rules.yaml": "domain: shop\nauthz: {credentials: [{jwt: {issuer: https://issuer.example, audiences: [shop], " +
			"algorithms: [ES256], jwks_file: jwks.json}}]}\n",
		"t.test": strings.ReplaceAll(`rules rules.yaml
start 2027-01-15T07:59:00Z
test a token
  0s      check GET / TOKEN -> 401 reason=not_yet
  1m      check GET / TOKEN -> 200 upstream x-auth-owner:ann
  60m59s  check GET / TOKEN -> 200
  61m     check GET / TOKEN -> 401 reason=expired
  900d    check GET / TOKEN -> 401 reason=expired
`, "TOKEN", "'authorization:Bearer "+token+"'"),
	}))
	if output, code := typed("$ extauthz test t.test"); code != 0 {
		t.Error(output)
	}
}

// TestNothingIsFetched checks that a test does not connect to the address of a jwks_url.
func TestNothingIsFetched(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	token := tokens.ES256(t, "k").Claims(t, map[string]any{"iss": "https://issuer.example", "aud": "shop", "sub": "ann",
		"exp": 1_800_003_600})
	t.Chdir(writeFiles(t, map[string]string{
		"rules.yaml": "domain: shop\nauthz: {credentials: [{jwt: {issuer: https://issuer.example, audiences: [shop], " +
			"algorithms: [ES256], jwks_url: https://" + listener.Addr().String() + "/}}]}\n",
		"t.test": "rules rules.yaml\ntest a token\n  check GET / 'authorization:Bearer " + token + "' -> 503 cause=no_keys\n",
	}))
	if output, code := typed("$ extauthz test t.test"); code != 0 {
		t.Error(output)
	}
	ours, err := net.Dial("tcp", listener.Addr().String()) // connections are accepted in their order
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	first, err := listener.Accept()
	if err != nil || first.RemoteAddr().String() != ours.LocalAddr().String() {
		t.Errorf("another connection was first: %v", err)
	}
	first.Close()
}

// TestWatchTests changes a test file, a rule file and a request in JSON, and adds a rule file. Each change makes the
// tests run again; the end of the context ends the command.
func TestWatchTests(t *testing.T) {
	rule := func(n int) string {
		return fmt.Sprintf("domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: %d}}]", n)
	}
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(writeFiles(t, map[string]string{
		"rules/a.yaml": rule(1),
		"request.json": `{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "a"}]}]}`,
		"t.test":       "rules rules\ntest one\n  request request.json -> allowed remaining=0\n",
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out testenv.Output
	p := &program{command.Program{Stdout: &out, Stderr: &out}}
	ended := make(chan error)
	s, err := settings.Read()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"t.test"}
	go func() {
		ended <- p.watchTests(ctx, files, func() error { return p.runTests(ctx, s, files, "text", 0) })
	}()
	seen := 0
	await := func(want string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			if all := out.String(); strings.Count(all, "Ctrl-C ends") <= seen || !strings.Contains(all, want) {
				return errors.New(all)
			}
			return nil
		}, want)
		seen++
	}
	await("ok   t.test: 1 test, 1 request")
	write("rules/a.yaml", rule(2))
	await("got  remaining=1")
	write("t.test", "rules rules\ntest one\n  request request.json -> allowed remaining=1\n"+
		"  request nope.json -> allowed\n")
	await("nope.json")
	write("nope.json", `{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "b"}]}]}`)
	await("ok   t.test: 1 test, 2 requests")
	write("rules/b.yaml", "domain: other\ndescriptrs: []\n")
	await("unknown key `descriptrs`")
	if err := os.Remove("t.test"); err != nil {
		t.Fatal(err)
	}
	await("no such file")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestColors checks that only a terminal that may show colors gets them, and that a hostile name changes no terminal.
func TestColors(t *testing.T) {
	t.Chdir(writeFiles(t, map[string]string{
		"rules.yaml": "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 5}}]\n",
		"t.test":     "rules rules.yaml\ntest a\x1b[2J\n  limit shop tenant=\x1b[2J -> refused\n",
	}))
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		p := &program{command.Program{Stdout: &out, Stderr: &out, Color: color}}
		p.run([]string{"test", "t.test"})
		if strings.Contains(out.String(), "\x1b[31mFAIL\x1b[0m") != color || strings.Contains(out.String(), "[2J") &&
			strings.Contains(out.String(), "\x1b[2J") {
			t.Errorf("color %t: %q", color, &out)
		}
	}
}

// writeFiles writes files by path into a new directory.
func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, content := range files {
		path = filepath.Join(dir, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err = errors.Join(err, os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
