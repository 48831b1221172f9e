package main

import (
	"bytes"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/commands"
)

var update = flag.Bool("update", false, "write the page of the subcommands")

// run runs extauthz-tools with arguments that have no spaces.
func run(t *testing.T, args, stdin string, stdout, stderr io.Writer) (code int) {
	t.Helper()
	p := &program{command.Program{Stdin: strings.NewReader(stdin), Stdout: stdout, Stderr: stderr}}
	return p.run(strings.Fields(args))
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{args: "", code: 0, stdout: "Usage:"},
		{args: "frobnicate", code: 2, stderr: `extauthz-tools: unknown subcommand "frobnicate": want bench, compare, ` +
			"migrate, version or --help"},
		{args: "--version", code: 0, stdout: "extauthz-tools "},
		{args: "version", code: 0, stdout: "extauthz-tools "},
		{args: "man", code: 2, stderr: "man: want one directory, for example: extauthz-tools man"},
		{args: "completion bash", code: 0, stdout: "__start_extauthz-tools"},
		{args: "bench --help", code: 0, stdout: "extauthz-tools bench --domain shop --descriptor user={key}"},
		{args: "bench", code: 2, stderr: "bench: missing --domain DOMAIN"},
		{args: "bench --domain d", code: 2, stderr: "bench: missing --descriptor KEY=VALUE,..."},
		{args: "bench --domain d --descriptor k", code: 2, stderr: `--descriptor "k": want KEY=VALUE`},
		{args: "bench --domain d --descriptor k=v --header a:b", code: 2, stderr: "--header needs --service ext_authz"},
		{args: "bench --domain d --descriptor k=v --keys zipf", code: 2, stderr: `"zipf": want uniform:N, zipf:N or one`},
		{args: "bench --domain d --descriptor k=v --keys uniform:100000001", code: 2, stderr: "with N from 1 to 100000000"},
		{args: "bench --domain d --descriptor k=v --keys one", code: 2, stderr: "write {key} in a descriptor, the path or"},
		{args: "bench --domain d --descriptor k=v --client curl", code: 2,
			stderr: `--client "curl": want one of [envoy traced deadline indexed]`},
		{args: "bench --domain d --descriptor k=v --in-flight 3 --rate -1", code: 2,
			stderr: "--rate -1: want 0 to 1000000\n--in-flight 3: want at least one request for each of the 4 connections\n"},
		{args: "bench --domain d --descriptor k=v --duration 2h --timeout 0s --connections 10001", code: 2,
			stderr: "--duration 2h0m0s: want more than 0 and at most 1h0m0s\n--timeout 0s: want 10ms to 1m0s"},
		{args: "bench --domain d --descriptor k=v --tls-ca f", code: 2, stderr: "--tls-name need --tls"},
		{args: "bench --domain d --descriptor k=v --address 192.0.2.1:1", code: 2, stderr: "--allow-remote permits it"},
		{args: "bench --domain d --descriptor k=v --address h", code: 2, stderr: "want host:port, such as 127.0.0.1:8081"},
		{args: "bench --domain d --descriptor k=" + strings.Repeat("v", 16384), code: 2, stderr: "at most 16384, one frame"},
		{args: "bench --service check", code: 2, stderr: `--service "check": want ratelimit or ext_authz`},
		{args: "bench --service ext_authz --domain d", code: 2, stderr: "--domain and --descriptor need --service ratelimit"},
		{args: "bench --service ext_authz --header a", code: 2, stderr: "want NAME:VALUE, or @FILE with one a line"},
		{args: "bench --service ext_authz --header @/none", code: 2, stderr: "--header: open /none: no such file"},
		{args: "migrate", code: 0, stdout: "ratelimit"},
		{args: "migrate sprng f", code: 2, stderr: `migrate: unknown subcommand "sprng" (did you mean spring?)`},
		{args: "migrate spring", code: 2, stderr: "migrate spring: want one file or -, for example: "},
		{args: "migrate spring /none", code: 2, stderr: "/none: read configuration of Spring: no such file"},
		{args: "migrate spring .", code: 2, stderr: ".: left out: not a regular file"},
		{args: "migrate spring --key=cookie f", code: 2, stderr: `--key "cookie": want owner, address, header:NAME`},
		{args: "migrate spring --key=a=header: f", code: 2, stderr: `--key "a=header:": want owner, address`},
		{args: "migrate spring --domain= f", code: 2, stderr: "--domain is empty"},
		{args: "migrate limitador a b", code: 2, stderr: "migrate limitador: want one limits file or -"},
		{args: "migrate limitador --descriptor a,,b f", code: 2, stderr: `--descriptor "a,,b": want different keys`},
		{args: "migrate limitador --descriptor a,b,a f", code: 2, stderr: `--descriptor "a,b,a": want different keys`},
		{args: "compare", code: 0, stdout: "ratelimit"},
		{args: "compare ratelimit", code: 2, stderr: "compare ratelimit: want a directory, a file or -, for example: config"},
		{args: "compare ratelimit --old 127.0.0.1:1 f", code: 2, stderr: "--old and --new: give both"},
		{args: "compare ratelimit --requests f f", code: 2, stderr: "--old and --new: give both"},
		{args: "compare spring", code: 2, stderr: "compare spring: want one file or -"},
		{args: "migrate ratelimit", code: 2, stderr: "migrate ratelimit: want a directory, a file or -"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t, c.args, "", &stdout, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, &stdout, &stderr)
			}
			if !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("want %q and %q in\n%s\n%s", c.stdout, c.stderr, &stdout, &stderr)
			}
		})
	}
}

// TestReference compares docs/reference/tools.md with the subcommands. `make reference` writes the page.
func TestReference(t *testing.T) {
	root := (&program{}).root()
	testenv.CheckPage(t, "docs/reference/tools.md", commands.Reference(root), *update)
	commands.CheckExamples(t, root)
}
