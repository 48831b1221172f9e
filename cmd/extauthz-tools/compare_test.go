package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/test/testenv"
)

// startService runs the service in this process until the test ends, and returns the address of its gRPC listener.
func startService(t *testing.T, compatibility, rules string) string {
	t.Helper()
	s, err := settings.Read()
	if err != nil {
		t.Fatal(err)
	}
	l := &s.Listeners
	l.Host, l.GRPCHost, l.Port, l.GRPCPort, l.DebugPort = "127.0.0.1", "127.0.0.1", 0, 0, 0
	s.Telemetry.LogLevel, s.Process.DrainDelay = settings.LogLevel(slog.LevelInfo), 0
	s.Rules.Root, s.Limits.Compatibility = testenv.RulesRootWith(t, rules), compatibility
	if s.Strict() {
		s.Limits.DefaultAlgorithm, s.Answers.Headers, s.Answers.Body = bucket.FixedWindow, nil, "off"
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
			return command.ErrReported
		}
		return nil
	}, "the service to say that it serves")
	return serving.FindStringSubmatch(out.String())[1]
}

// TestCompareRatelimit compares running services: as envoyproxy/ratelimit decides (COMPATIBILITY=strict), as the
// service decides by default, and with other rules.
func TestCompareRatelimit(t *testing.T) { // not parallel: the command sets the variables of the process
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
	path, bad := fileWith(t, "rules.yaml", rules), fileWith(t, "rules.yaml", "domains: shop\n")
	requests := fileWith(t, "requests",
		`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`)
	limits, converted := fileWith(t, "limits.yaml", strings.ReplaceAll(limitadorLimits, "60", "31536000")), t.TempDir()
	if code := run(t, "migrate limitador -w "+converted+" "+limits, "", io.Discard, io.Discard); code != command.ExitOK {
		t.Fatalf("migrate limitador: exit code %d", code)
	}
	for _, c := range []struct {
		args, old, new string
		code           int
		want           string
	}{
		{"ratelimit -e COMPATIBILITY=strict " + path, older, again, 0, "Compared 19 requests: 19 with the same answer\n"},
		{"ratelimit " + path, older, newer, 0,
			"Listed in docs/reference/compatibility.md: 4. several wildcards match, "},
		{"ratelimit " + path, older, other, 1, "Not listed in docs/reference/compatibility.md: "},
		{"ratelimit --requests " + requests + " " + path, older, newer, 0, "Compared 1 request: "},
		{"ratelimit -e COMPATIBILITY=strict " + path, older, newer, 1, "  what       old"},
		{"ratelimit " + converted, older, newer, 0, "Compared 6 requests: "},
		{"ratelimit " + converted, older, other, 1, "Not listed in docs/reference/compatibility.md: "},
		{"ratelimit -o json " + path, older, other, 1, `"unlisted": `},
		{"ratelimit " + bad, older, newer, 1, "rules.yaml:1:1: error: "},
		{"ratelimit -e PORT=x " + path, older, newer, 1, "PORT: want a port"},
		{"ratelimit " + path, older, "127.0.0.1:1", 1, "The comparison ended early: 127.0.0.1:1 does not answer: "},
		{"ratelimit --timeout 1ns " + path, older, newer, 1, "The comparison ended early: "},
		{"ratelimit --requests " + path + " " + path, older, newer, 1, path + ":1: no RateLimitRequest in JSON: "},
		{"ratelimit " + path, older, "192.0.2.1:8081", 2, "--new \"192.0.2.1:8081\" is not on this machine"},
		{"ratelimit --timeout 0s " + path, older, newer, 2, "--timeout 0s: want more than 0"},
	} {
		var out bytes.Buffer
		args := "compare " + c.args + " --old " + c.old + " --new " + c.new
		if code := run(t, args, "", &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s", args, code, c.code, c.want, &out)
		}
	}
}

// TestCompareSpringMistakes checks the flags and the sample of a comparison of gateways. No value of a header is shown.
func TestCompareSpringMistakes(t *testing.T) {
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
		{"--old http://127.0.0.1:1 " + source, 2, "--old and --new: give both"},
		{"--old 127.0.0.1:1 --new http://127.0.0.1:2 " + source, 2, "--old \"127.0.0.1:1\": want http://host:port"},
		{"--old http://127.0.0.1:1 --new http://192.0.2.1 " + source, 2, "--new \"http://192.0.2.1\" is not on this machine"},
		{"--old http://a:hunter2@127.0.0.1 --new http://127.0.0.1 " + source, 2, "--old a user and a password cannot be"},
		{"--requests " + sample + " " + source, 2, "--old and --new: give both"},
		{"-H x-api-key:hunter2 " + source, 2, "--old and --new: give both"},
		{"-H hunter2" + both + source, 2, "--header: want NAME:VALUE, or @FILE with one a line"},
		{"-H host=hunter2:1" + both + source, 2, "--header: the name of a header is not valid"},
		{"-H upgrade:hunter2" + both + source, 2, "--header: `upgrade` belongs to a connection"},
		{both + source, 2, "a route limits by the owner of an API key, so the sample needs one: give --header"},
		{"--requests " + sample + both + source, 1, sample + ":2: `path` cannot be `a`: want one that begins with /"},
		{"--requests /none" + both + source, 2, "open /none: no such file"},
		{"-H x-api-key:hunter2" + both + source, 1, "ended early: http://127.0.0.1:1 does not answer: "},
		{both + open, 1, "The comparison ended early: there are no rules to make requests from"},
	} {
		var out bytes.Buffer
		code := run(t, "compare spring "+c.args, "", &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "hunter2") {
			t.Errorf("%s: exit code %d, want %d and %q, without a secret, in\n%s", c.args, code, c.code, c.want, &out)
		}
	}
}
