package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/tools/migrate"
)

// fileWith writes a file and returns its path.
func fileWith(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const limitadorLimits = "- {namespace: shop, max_value: 5, seconds: 60, variables: [\"descriptors[0].user\"]}\n"

// TestMigrateWrites writes rule files and overwrites none. The rest is for stderr, so that stdout is a rule file.
func TestMigrateWrites(t *testing.T) {
	t.Parallel()
	limits, dir := fileWith(t, "limits.yaml", limitadorLimits), filepath.Join(t.TempDir(), "rules", "new")
	var stdout, stderr bytes.Buffer
	if code := run(t, "migrate limitador "+limits, "", &stdout, &stderr); code != command.ExitOK {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	rules := stdout.String()
	if _, problems := file.Check([]string{strictyaml.Stdin}, strings.NewReader(rules), file.Config{}); len(problems) > 0 {
		t.Errorf("check of what was printed: %v\n%s", problems, rules)
	}
	stdout.Reset()
	if code := run(t, "migrate limitador -w "+dir+" "+limits, "", &stdout, &stderr); code != command.ExitOK {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	written, err := os.ReadFile(filepath.Join(dir, "shop.yaml"))
	if err != nil || string(written) != rules || stdout.String() != "wrote "+filepath.Join(dir, "shop.yaml")+"\n" {
		t.Errorf("%v, printed %q, and wrote\n%s\nwant\n%s", err, &stdout, written, rules)
	}
	stderr.Reset()
	code := run(t, "migrate limitador -w "+dir+" "+limits, "", &stdout, &stderr)
	if want := "shop.yaml exists already"; code != command.ExitUsage || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d, want 2 and %q in\n%s", code, want, &stderr)
	}
}

// TestMigrateJSON prints the result of each subcommand as JSON.
func TestMigrateJSON(t *testing.T) { // not parallel: the command sets the variables of the process
	with := func(problems ...strictyaml.Problem) *migrate.Converted {
		return &migrate.Converted{Problems: append(strictyaml.Problems{}, problems...)}
	}
	for _, c := range []struct {
		args, stdin string
		code        int
		want        conversionResult
	}{
		{"limitador", limitadorLimits, 0, conversionResult{OK: true, Converted: with(), Files: []convertedFile{{
			"shop.yaml", "# Converted from standard input by extauthz-tools migrate.\ndomain: shop\ndescriptors:\n" +
				"  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 5 } # standard input:1\n"}}}},
		{"limitador", "[]", 1, conversionResult{Files: []convertedFile{}, Converted: with(strictyaml.Problem{
			File: "standard input", Message: "the list has no limits"})}},
		{"spring", "spring.cloud.gateway.routes: []", 0, conversionResult{OK: true, Files: []convertedFile{},
			Converted: with()}},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t, "migrate "+c.args+" -o json -", c.stdin, &stdout, &stderr)
		var got struct{ Notes []string }
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || code != c.code || stderr.Len() > 0 {
			t.Errorf("migrate %s: exit code %d, want %d; %v\n%s", c.args, code, c.code, err, &stderr)
		}
		c.want.Notes = got.Notes
		var want bytes.Buffer
		if err := command.PrintJSON(&want, c.want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), stdout.String()); diff != "" {
			t.Errorf("migrate %s (-want +got):\n%s", c.args, diff)
		}
	}
}

// TestMigrateRatelimit lists what becomes of settings and rules. No value of a variable is shown.
func TestMigrateRatelimit(t *testing.T) { // not parallel: the command sets the variables of the process
	good := fileWith(t, "good.yaml",
		"domain: good\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	bad := fileWith(t, "bad.yaml", "domain: bad\ndescriptors:\n  - key: k\n"+
		"    unit: hour\n    requests_per_unit: 1\n")
	env := fileWith(t, "env", "USE_STATSD=false\nBACKEND_TYPE=memcache\nREDIS_AUTH=hunter2hunter2\nLOG_LEVEL=INFO\n")
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{good, 0, "Rules: ok, 1 domain. They stay as they are.\n", ""},
		{good, 0, "1. a rule without an algorithm\n      now: 1 limit: sliding_window in place of fixed_window\n" +
			"      at: " + good + ":2\n      to keep it: DEFAULT_ALGORITHM=fixed_window\n", ""},
		{"-e DEFAULT_ALGORITHM=fixed_window " + good, 0, "  stays  DEFAULT_ALGORITHM\n\nRules: ok", ""},
		{"-e COMPATIBILITY=strict -e REDIS_TIMEOUT=9ms -e DEBUG_HOST=::1 " + good, 0, "They stay as they are.\n", ""},
		{"--env-file " + env + " -e BACKEND_TYPE=redis " + good, 1,
			"  refused  BACKEND_TYPE  BACKEND_TYPE=redis needs REDIS_URL", ""},
		{"--env-file " + env + " " + good, 1, "  refused  BACKEND_TYPE  memcached cannot decide exactly", ""},
		{bad, 1, "Rules: they have mistakes\n", bad + ":4:5: error: "},
		{bad, 1, "", "inside `rate_limit:`"},
		{"-e LOG_LEVEL=INFO", 0,
			"  stays  LOG_LEVEL\n\nWhat changes, by the rows of docs/reference/compatibility.md:\n  5. the store", ""},
		{"", 2, "", "migrate ratelimit: want a directory, a file or -, or variables"},
		{"-o json " + good, 0, "\"changes\": [\n", ""},
		{"--env-file /none " + good, 2, "", "open /none: no such file"},
		{"--env-file " + good + " " + good, 1, "", good + ":1: want NAME=VALUE"},
		{"-e hunter2hunter2 " + good, 2, "", "--env number 1 (not shown, because it may be a secret): want NAME=VALUE"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t, "migrate ratelimit "+c.args, "", &stdout, &stderr)
		if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: exit code %d, want %d, %q and %q in\n%s\n%s", c.args, code, c.code, c.stdout, c.stderr, &stdout,
				&stderr)
		}
		if strings.Contains(stdout.String()+stderr.String(), "hunter2") {
			t.Errorf("%s shows a secret:\n%s\n%s", c.args, &stdout, &stderr)
		}
	}
}
