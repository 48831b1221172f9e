package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/testenv"
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
	if code := run(t, nil, "migrate limitador "+limits, "", &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	rules := stdout.String()
	stdout.Reset()
	if code := run(t, nil, "check -", rules, &stdout, &stderr); code != exitOK {
		t.Errorf("check of what was printed: exit code %d\n%s\n%s", code, rules, &stderr)
	}
	stdout.Reset()
	if code := run(t, nil, "migrate limitador -w "+dir+" "+limits, "", &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	written, err := os.ReadFile(filepath.Join(dir, "shop.yaml"))
	if err != nil || string(written) != rules || stdout.String() != "wrote "+filepath.Join(dir, "shop.yaml")+"\n" {
		t.Errorf("%v, printed %q, and wrote\n%s\nwant\n%s", err, &stdout, written, rules)
	}
	stderr.Reset()
	code := run(t, nil, "migrate limitador -w "+dir+" "+limits, "", &stdout, &stderr)
	if want := "shop.yaml exists already"; code != exitUsage || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d, want 2 and %q in\n%s", code, want, &stderr)
	}
}

// TestMigrateJSON prints the result of each subcommand as JSON.
func TestMigrateJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, stdin string
		code        int
		want        conversionResult
	}{
		{"limitador", limitadorLimits, 0, conversionResult{OK: true, Problems: []problem{}, Files: []convertedFile{{
			"shop.yaml", "# Converted from standard input by extauthz migrate.\ndomain: shop\ndescriptors:\n  - key: user\n" +
				"    rate_limit: { unit: minute, requests_per_unit: 5 } # standard input:1\n"}}}},
		{"limitador", "[]", 1, conversionResult{Files: []convertedFile{}, Problems: []problem{
			{File: "standard input", Severity: "error", Message: "the list has no limits"}}}},
		{"spring", "spring.cloud.gateway.routes: []", 0, conversionResult{OK: true, Files: []convertedFile{},
			Problems: []problem{}}},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t, nil, "migrate "+c.args+" -o json -", c.stdin, &stdout, &stderr)
		var got conversionResult
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || code != c.code || stderr.Len() > 0 {
			t.Errorf("migrate %s: exit code %d, want %d; %v\n%s", c.args, code, c.code, err, &stderr)
		}
		got.Notes = nil
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("migrate %s (-want +got):\n%s", c.args, diff)
		}
	}
}

// TestMigrateRatelimit lists what becomes of settings and rules. No value of a variable is shown.
func TestMigrateRatelimit(t *testing.T) {
	t.Parallel()
	good, bad := fileWith(t, "good.yaml", goodRules), fileWith(t, "bad.yaml", "domain: bad\ndescriptors:\n  - key: k\n"+
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
			"  stays  LOG_LEVEL\n\nWhat changes, by the rows of docs/compatibility.md:\n  5. the store", ""},
		{"", 2, "", "migrate ratelimit: want a directory, a file or -, or variables"},
		{"-o json " + good, 0, "\"changes\": [\n", ""},
		{"--env-file /none " + good, 2, "", "open /none: no such file"},
		{"--env-file " + good + " " + good, 1, "", good + ":1: want NAME=VALUE"},
		{"-e hunter2hunter2 " + good, 2, "", "--env number 1 (not shown, because it may be a secret): want NAME=VALUE"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t, nil, "migrate ratelimit "+c.args, "", &stdout, &stderr)
		if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: exit code %d, want %d, %q and %q in\n%s\n%s", c.args, code, c.code, c.stdout, c.stderr, &stdout,
				&stderr)
		}
		if strings.Contains(stdout.String()+stderr.String(), "hunter2") {
			t.Errorf("%s shows a secret:\n%s\n%s", c.args, &stdout, &stderr)
		}
	}
}

// startService runs the service in this process until the test ends, and returns the address of its gRPC listener.
func startService(t *testing.T, compatibility, rules string) string {
	t.Helper()
	s, err := service.ReadSettings(service.Environment{
		"PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0", "LOG_LEVEL": "INFO", "DRAIN_DELAY": "0s", "HOST": "127.0.0.1",
		"GRPC_HOST": "127.0.0.1", "RUNTIME_ROOT": testenv.RulesRootWith(t, rules), "COMPATIBILITY": compatibility,
	})
	if err != nil {
		t.Fatal(err)
	}
	out := new(testenv.Output)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx, service.Config{Settings: s, Stderr: out}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v\n%s", err, out)
		}
	})
	serving := regexp.MustCompile(`msg=serving grpc=(\S+)`)
	testenv.Eventually(t, func() error {
		if !serving.MatchString(out.String()) {
			return errReported
		}
		return nil
	}, "the service to say that it serves")
	return serving.FindStringSubmatch(out.String())[1]
}

// TestMigrateCompares compares running services: as envoyproxy/ratelimit decides (COMPATIBILITY=strict), as the service
// decides by default, and with other rules.
func TestMigrateCompares(t *testing.T) {
	t.Parallel()
	const rules = `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: path, value: /a/*, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: path, value: /a/b/*, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: none, rate_limit: {unit: year, requests_per_unit: 0}}
`
	older, again := startService(t, "strict", rules), startService(t, "strict", rules)
	newer := startService(t, "default", rules)
	other := startService(t, "default", strings.Replace(rules, "requests_per_unit: 5", "requests_per_unit: 4", 1))
	path := fileWith(t, "rules.yaml", rules)
	requests := fileWith(t, "requests",
		`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`)
	limits := fileWith(t, "limits.yaml", strings.ReplaceAll(limitadorLimits, "60", "31536000"))
	for _, c := range []struct {
		args, old, new string
		code           int
		want           string
	}{
		{"ratelimit -e COMPATIBILITY=strict " + path, older, again, 0, "Compared 19 requests: 19 with the same answer\n"},
		{"ratelimit " + path, older, newer, 0,
			"Listed in docs/compatibility.md: 4. several wildcards match, "},
		{"ratelimit " + path, older, other, 1, "Not listed in docs/compatibility.md: "},
		{"ratelimit --requests " + requests + " " + path, older, newer, 0, "Compared 1 request: "},
		{"ratelimit -e COMPATIBILITY=strict " + path, older, newer, 1, "  what       old"},
		{"limitador " + limits, older, newer, 0, "Compared 6 requests: "},
		{"limitador " + limits, older, other, 1, "Not listed in docs/compatibility.md: "},
		{"ratelimit -o json " + path, older, other, 1, `"comparison": {`},
		{"ratelimit " + path, older, "127.0.0.1:1", 1, "The comparison ended early: 127.0.0.1:1 does not answer: "},
		{"ratelimit --timeout 1ns " + path, older, newer, 1, "The comparison ended early: "},
		{"ratelimit --requests " + path + " " + path, older, newer, 1, path + ":1: no RateLimitRequest in JSON: "},
		{"ratelimit " + path, older, "192.0.2.1:8081", 2, "--new \"192.0.2.1:8081\" is not on this machine"},
		{"ratelimit --timeout 0s " + path, older, newer, 2, "--timeout 0s: want more than 0"},
	} {
		var out bytes.Buffer
		args := "migrate " + c.args + " --old " + c.old + " --new " + c.new
		if code := run(t, nil, args, "", &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s", args, code, c.code, c.want, &out)
		}
	}
}

// TestMigrateSpringMistakes checks the flags and the sample of a comparison of gateways. No value of a header is shown.
func TestMigrateSpringMistakes(t *testing.T) {
	t.Parallel()
	const route = "spring.cloud.gateway.routes: [{id: a, predicates: [Path=/a], filters: [{name: RequestRateLimiter, " +
		"args: {redis-rate-limiter: {replenishRate: 1, burstCapacity: 1}}}]}]\n"
	source, open := fileWith(t, "application.yml", route), fileWith(t, "open.yml", "spring.cloud.gateway.routes: []\n")
	const both = " --old http://127.0.0.1:1 --new http://127.0.0.1:2 "
	sample := fileWith(t, "sample", `{"path":"/a"}`+"\n"+`{"path":"a"}`)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--old http://127.0.0.1:1 " + source, 2, "--old and --new: give both or none"},
		{"--old 127.0.0.1:1 --new http://127.0.0.1:2 " + source, 2, "--old \"127.0.0.1:1\": want http://host:port"},
		{"--old http://127.0.0.1:1 --new http://192.0.2.1 " + source, 2, "--new \"http://192.0.2.1\" is not on this machine"},
		{"--old http://a:hunter2@127.0.0.1 --new http://127.0.0.1 " + source, 2, "--old a user and a password cannot be"},
		{"--requests " + sample + " " + source, 2, "--requests needs --old and --new"},
		{"-H x-api-key:hunter2 " + source, 2, "--header needs --old and --new"},
		{"-H hunter2" + both + source, 2, "--header number 1 (not shown, because it may be a secret): want NAME: VALUE"},
		{"-H host=hunter2:1" + both + source, 2, "--header number 1: "},
		{"-H upgrade:hunter2" + both + source, 2, "--header number 1: `upgrade` belongs to a connection"},
		{both + source, 2, "a route limits by the owner of an API key, so the sample needs one: give --header"},
		{"--requests " + sample + both + source, 1, sample + ":2: `path` cannot be `a`: want one that begins with /"},
		{"--requests /none" + both + source, 2, "open /none: no such file"},
		{"-H x-api-key:hunter2" + both + source, 1, "ended early: http://127.0.0.1:1 does not answer: "},
		{both + open, 1, "The comparison ended early: there are no rules to make requests from"},
	} {
		var out bytes.Buffer
		code := run(t, nil, "migrate spring "+c.args, "", &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "hunter2") {
			t.Errorf("%s: exit code %d, want %d and %q, without a secret, in\n%s", c.args, code, c.code, c.want, &out)
		}
	}
}
