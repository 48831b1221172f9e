package main

import (
	"bytes"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/test/testenv"
)

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, "rules.yaml"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	good := write("good", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	bad := write("bad", "domain: d\ndescriptors:\n  - key: k\n    rate_limt: {unit: hour, requests_per_unit: 1}\n")
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{args: "frobnicate", code: 2, stderr: `extauthz: unknown subcommand "frobnicate": want buckets, check, client, ` +
			"doctor, echo, explain, health, keys, schema, serve, settings, shadow, test, version or --help"},
		{args: "frobnicate", code: 2, stderr: "(extauthz --help lists all flags)"},
		{args: "chekc --envoy e .", code: 2, stderr: `unknown subcommand "chekc" (did you mean check?): want `},
		{args: "keys lst", code: 2, stderr: `extauthz: keys: unknown subcommand "lst" (did you mean list?): want create, ` +
			"list, revoke, rotate, secret, sign or --help"},
		{args: "keys", code: 0, stdout: "Usage:"},
		{args: "help keys create", code: 0, stdout: "--expires"},
		{args: "completion bash", code: 0, stdout: "__start_extauthz"},
		{args: "check --envoi e .", code: 2, stderr: "extauthz: check: unknown flag --envoi (did you mean " +
			"--envoy?)\n(extauthz check --help lists all flags)"},
		{args: "serve here", code: 2,
			stderr: `serve: takes only flags, not "here": all settings are environment variables`},
		{args: "check", code: 2, stderr: "check: want a directory, a file or -"},
		{args: "check --envoy", code: 2, stderr: "check: flag needs an argument: --envoy"},
		{args: "check --help", code: 0, stdout: "--envoy FILE"},
		{args: "check " + dir + "/none " + dir + "/nil", code: 2, stderr: "there is no file or directory " + dir +
			"/none\nthere is no file or directory " + dir + "/nil\n"},
		{args: "check " + good, code: 0, stdout: "ok: 1 domain, 1 limit, generation "},
		{args: "check " + bad, code: 1, stdout: "rules.yaml:4:5: error: "},
		{args: "check " + bad, code: 1, stdout: "did you mean `rate_limit`?"},
		{args: "check --keys " + dir + "/none " + good, code: 1, stderr: "check: --keys: open " + dir + "/none: no such "},
		{args: "check --envoy " + dir + "/none ../../internal/service/sample", code: 1, stdout: dir +
			"/none: error: read configuration of Envoy: no such file"},
		{args: "check --envoy http://ann:swordfish@127.0.0.1:1/ ../../internal/service/sample", code: 1,
			stdout: "http://127.0.0.1:1: error: cannot read the configuration of Envoy: dial tcp 127.0.0.1:1: connect: "},
		{args: "check --envoy http://ann:swordfish%zz@a ../../internal/service/sample", code: 1,
			stdout: "--envoy: error: cannot read the configuration of Envoy: want a URL such as http://127.0.0.1:9901 "},
		{args: "doctor rules", code: 2, stderr: "doctor: nothing to examine: want --envoy URL or --redis URL, or REDIS_URL"},
		{args: "doctor --envoy envoy.yaml " + good, code: 2, stderr: `doctor: --envoy "envoy.yaml": want a URL such as `},
		{args: "doctor --envoy http://127.0.0.1:1", code: 2, stderr: "there is no file or directory /srv/runtime_data/"},
		{args: "doctor --envoy http://127.0.0.1:1 " + bad, code: 2, stdout: "did you mean `rate_limit`?"},
		{args: "doctor --envoy http://127.0.0.1:1 " + good, code: 2, stdout: "127.0.0.1:1: error: cannot read the "},
		{args: "doctor --redis redis://ann:swordfish@127.0.0.1:1 " + good, code: 2, stdout: "redis://127.0.0.1:1: error: "},
		{args: "doctor --redis redis://ann:sword@fish@a:b:c " + good, code: 2, stdout: "REDIS_URL: error: cannot ask "},
		{args: "check --envoy ../../internal/service/sample ../../internal/service/sample", code: 1,
			stdout: "sample: error: this is not a regular file"},
		{args: "check --envoy ../../envoy/envoy.yaml " + good, code: 1,
			stdout: "no rule file has an `authz:` section to compare this filter with"},
		{args: "check --envoy ../../envoy/envoy.yaml ../../internal/service/sample", code: 0,
			stdout: "ok: ../../envoy/envoy.yaml, 1 connection manager with ext_authz or ratelimit"},
		{args: "check --envoy ../../envoy/tcp.yaml --envoy ../../envoy/sidecar.yaml ../../internal/service/sample", code: 1,
			stdout: "../../envoy/tcp.yaml: error: no HTTP connection manager"},
		{args: "health -timeout 1s", code: 2, stderr: "health: unknown flag -timeout: write --timeout"},
		{args: "keys create -owner alice", code: 2, stderr: "keys create: unknown flag -owner: write --owner"},
		{args: "keys create -ownr alice", code: 2, stderr: `keys create: --output "wnr": want text or json`},
		{args: "keys create --owner a --burst x", code: 2, stderr: `keys create: --burst "x": want a whole number`},
		{args: "keys ea_4Gd0kZ7b_abcdefghijklmnopqrstuvwxyz", code: 2,
			stderr: `unknown subcommand "ea_4Gd0kZ7b_**************************"`},
		{args: "bench --domain d", code: 2,
			stderr: "extauthz: bench: extauthz-tools has this command now: run extauthz-tools bench\n"},
		{args: "migrate --help", code: 2,
			stderr: "extauthz: migrate: extauthz-tools has this command now: run extauthz-tools migrate\n"},
		{args: "man", code: 2, stderr: "man: want one directory"},
		{args: "health --help", code: 0, stdout: "Example"},
		{args: "health now", code: 2, stderr: `health: takes only flags, not "now"`},
		{args: "health --timeout 0s", code: 2, stderr: "--timeout 0s: want more than 0, such as 2s"},
		{args: "health --timeout 2", code: 2, stderr: `health: --timeout "2": time: missing unit in duration`},
		{args: "health --http localhost:8080", code: 2,
			stderr: `--http "localhost:8080": want a URL such as http://127.0.0.1:8080/readyz`},
		{args: "health --http http://a/ --service s", code: 2, stderr: "--service and --http: take one of them"},
		{args: "echo --help", code: 0, stdout: "ECHO_ADDRESS"},
		{args: "echo 8000", code: 2, stderr: `echo: takes only flags, not "8000": ECHO_ADDRESS sets its address`},
		{args: "--help", code: 0, stdout: "Usage:"},
		{args: "version", code: 0, stdout: "extauthz "},
		{args: "--version", code: 0, stdout: "extauthz "},
		{args: "-v", code: 0, stdout: "extauthz "},
		{args: "version -o yaml", code: 2, stderr: `version: --output "yaml": want text or json`},
		{args: "version please", code: 2, stderr: `version: takes only flags, not "please"`},
		{args: "schema", code: 0, stdout: `"$schema": "http://json-schema.org/draft-07/schema#"`},
		{args: "schema authz.jwt", code: 0, stdout: "authz.credentials.jwt: map\nexample: {issuer: "},
		{args: "schema authz.jwt", code: 0, stdout: "\n  leeway        duration       How far the clocks"},
		{args: "schema authz.jwt", code: 0, stdout: "may differ, at most 1m. (default 0s)\n"},
		{args: "schema authz.header", code: 0, stdout: "keys match authz.header (* is required):\n"},
		{args: "schema authz.jwt", code: 0, stdout: "\nAt most one of header, scheme, query or cookie.\nAt most one of " +
			"jwks_url or jwks_file.\n"},
		{args: "schema authz.limits.actions", code: 0, stdout: "\nOne of credential, request_headers, remote_address, "},
		{args: "schema authz.refused.cost.number", code: 0,
			stdout: "authz.limits.cost.number: whole number, 1 to 1000000000\n"},
		{args: "schema authz.header", code: 0, stdout: "\n  authz.limits.actions.request_headers.header*     text  The " +
			"name of the header.\n"},
		{args: "schema authz.jwtt", code: 2, stderr: "schema: rule files have no key `authz.jwtt` (did you mean jwt?)"},
		{args: "schema jwt.access", code: 2, stderr: "have no key `jwt.access` (did you mean access?)"},
		{args: "schema zzz", code: 2, stderr: "schema: rule files have no key `zzz`\n"},
		{args: "schema .", code: 0, stdout: "a rule file: map\n\nA rule file is YAML"},
		{args: "schema authz jwt", code: 2, stderr: "schema: want one key at most, such as authz.jwt"},
		{args: "__complete schema ''", code: 0, stdout: "authz.credentials.jwt.leeway\tHow far the clocks"},
		{args: "settings", code: 0, stdout: "REDIS_TIMEOUT"},
		{args: "settings", code: 0, stdout: "\n\nTLS of the gRPC listener:\nGRPC_SERVER_USE_TLS "},
		{args: "settings -o json", code: 0, stdout: `"name": "REDIS_TIMEOUT"`},
		{args: "settings grpc_port", code: 0, stdout: "group      Listeners\nin effect  8081\ndefault    8081\n" +
			"example    9081\nmeaning    port of the gRPC listener\n"},
		{args: "settings listeners", code: 0, stdout: "Listeners:\nHOST "},
		{args: "settings REDIS_TIMOUT", code: 2,
			stderr: `settings: there is no setting or group "REDIS_TIMOUT" (did you mean REDIS_TIMEOUT?)`},
		{args: "settings --yaml", code: 2, stderr: `settings: unknown flag --yaml`},
	} {
		t.Run(c.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t, nil, c.args, "", &stdout, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, &stdout, &stderr)
			}
			if strings.Contains(stdout.String()+stderr.String(), "fish") {
				t.Errorf("a password in\n%s%s", &stdout, &stderr)
			}
			if !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("want %q and %q in\n%s\n%s", c.stdout, c.stderr, &stdout, &stderr)
			}
		})
	}
}

// TestWorking says on a terminal what takes long, and removes it.
func TestWorking(t *testing.T) {
	var stdout, stderr bytes.Buffer
	p := &program{command.Program{Stdout: &stdout, Stderr: &stderr, Terminal: true}}
	if code := p.run([]string{"doctor", "--envoy", "http://127.0.0.1:1", "../../internal/service/sample"}); code != 2 ||
		stderr.String() != "reading the configuration and the counters of Envoy …\r\x1b[K" {
		t.Errorf("exit code %d, want 2; on the terminal:\n%q", code, &stderr)
	}
}

// TestSettingsInEffect shows values of the environment, of files, and those that follow from other settings.
func TestSettingsInEffect(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("swordfish"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := variables{"COMPATIBILITY": "strict", "REDIS_URL": "redis://127.0.0.1:1", "REDIS_AUTH_FILE": secret,
		"REDIS_TIMEOUT": "1500ms", "LOG_LEVEL": "debug"}
	for name, want := range map[string]string{
		"REDIS_AUTH": "(set)", "REDIS_URL": "(set)", "REDIS_TIMEOUT": "1500ms", "LOG_LEVEL": "debug",
		"DEFAULT_ALGORITHM": "fixed_window", "RESPONSE_HEADERS": "off", "PORT": "8080",
	} {
		for args, line := range map[string]string{
			"settings " + name: "in effect  " + want + "\n", "settings -o json " + name: `"value": "` + want + `"`,
		} {
			var stdout, stderr bytes.Buffer
			if code := run(t, env, args, "", &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), line) {
				t.Errorf("%s: exit code %d, want %q in\n%s%s", args, code, line, &stdout, &stderr)
			}
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(t, variables{"PORT": "x"}, "settings PORT", "", &stdout, &stderr); code != command.ExitFailed ||
		strings.Contains(stdout.String(), "in effect") || !strings.Contains(stdout.String(), "default  8080") {
		t.Errorf("with a mistake: exit code %d,\n%s%s", code, &stdout, &stderr)
	}
}

// TestTablesOfATerminal checks that no line is wider than the terminal, and that no word is broken.
func TestTablesOfATerminal(t *testing.T) {
	for _, args := range []string{"settings", "settings RESPONSE_HEADERS", "schema authz.jwt", "schema authz.header"} {
		var wide bytes.Buffer
		runHere(args, "", &wide, &wide)
		for _, width := range []int{60, 80, 200} {
			var out bytes.Buffer
			p := &program{command.Program{Stdout: &out, Stderr: &out, Width: width}}
			if code := p.run(strings.Fields(args)); code != 0 {
				t.Fatal(out.String())
			}
			if got, want := strings.Fields(out.String()), strings.Fields(wide.String()); !slices.Equal(got, want) {
				t.Errorf("%s with %d columns has other words", args, width)
			}
			_, table, found := strings.Cut(out.String(), "Keys (")
			if !found {
				table = out.String()
			}
			for line := range strings.Lines(table) {
				if n := utf8.RuneCountInString(line) - 1; n > width && strings.Contains(strings.TrimSpace(line), " ") &&
					!strings.HasPrefix(line, "At most one of ") {
					t.Errorf("%s with %d columns has a line of %d: %s", args, width, n, line)
				}
			}
		}
	}
}

// TestNoSecretInJSON checks that JSON output hides secrets in wrong variables, as text output does.
func TestNoSecretInJSON(t *testing.T) {
	const secret = "Xq7Abcdefghijklmnop0123456789QRS"
	for _, args := range []string{
		"health -o json", "check -o json " + secret, "check -o sarif " + secret, "settings -o json", "version -o json",
	} {
		var out bytes.Buffer
		run(t, variables{"GRPC_UDS": "/" + secret, "RUNTIME_ROOT": secret}, args, "", &out, &out)
		if strings.Contains(out.String(), secret) || out.Len() == 0 {
			t.Errorf("%s prints the secret, or nothing:\n%s", args, &out)
		}
	}
}

// TestCheckRequiresEnd checks that check uses the settings of serve.
func TestCheckRequiresEnd(t *testing.T) {
	dir := filepath.Join(testenv.RulesRoot(t), "config")
	var out bytes.Buffer
	const want = "rules.yaml:2:1: error: the file does not end with `end: true`"
	env := variables{"RULES_REQUIRE_END": "true"}
	code := run(t, env, "check "+dir, "", &out, &out)
	if code != command.ExitFailed || !strings.Contains(out.String(), want) {
		t.Errorf("exit code %d, want 1 and %q in\n%s", code, want, &out)
	}
}

// TestNoStart checks that one line or list names what the operator has to fix, with exit code 1.
func TestNoStart(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := strconv.Itoa(busy.Addr().(*net.TCPAddr).Port)
	used := filepath.Join(t.TempDir(), "grpc.sock")
	socket, err := net.Listen("unix", used)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	broken := filepath.Join(t.TempDir(), "config")
	if err := os.Mkdir(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	mistake := []byte("domain: a\ndescriptors: [{kye: x}]\n")
	if err := os.WriteFile(filepath.Join(broken, "a.yaml"), mistake, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  variables
		want string
	}{
		"port in use": {variables{"GRPC_PORT": port}, "port " + port +
			" of 127.0.0.1 is in use: stop what listens there, or set GRPC_PORT to another port"},
		"missing directory": {variables{"RUNTIME_ROOT": "/nowhere"}, "extauthz: the rule directory " +
			"/nowhere/config does not exist: mount or create it, or set RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and " +
			"RUNTIME_APPDIRECTORY to the one with the rules\n"},
		"rules not mounted": {variables{"REDIS_URL": "localhost:6379", "GRPC_UDS": "/run/grpc.sock"},
			"/srv/runtime_data/current/config does not exist"},
		"not my address": {variables{"RUNTIME_ROOT": testenv.RulesRoot(t), "GRPC_HOST": "192.0.2.1"},
			"listen for GRPC_HOST: its host is not an address of this machine (listen tcp 192.0.2.1:0"},
		"socket in use": {variables{"RUNTIME_ROOT": testenv.RulesRoot(t), "GRPC_UDS": used}, "GRPC_UDS=" +
			used + ": the socket is in use: stop what listens there"},
		"socket too long": {variables{"RUNTIME_ROOT": testenv.RulesRoot(t), "GRPC_UDS": "/" +
			strings.Repeat("s", 107)}, "a path of 108 bytes is too long for a socket"},
		"plaintext": {variables{"RUNTIME_ROOT": testenv.RulesRoot(t), "GRPC_HOST": "0.0.0.0",
			"HOST": "127.0.0.1", "STRICT_ENVIRONMENT": "true"},
			"GRPC_HOST=0.0.0.0: other machines can reach a listener without TLS"},
		"plaintext word": {variables{"GRPC_PLAINTEXT": "yes"}, "GRPC_PLAINTEXT: want allow"},
		"broken rules":   {variables{"RUNTIME_ROOT": filepath.Dir(broken)}, "a.yaml:2:"},
		"wrong setting":  {variables{"PORT": "x"}, `PORT: want a port`},
		"socket is a file": {variables{"RUNTIME_ROOT": testenv.RulesRoot(t),
			"GRPC_UDS": filepath.Join(broken, "a.yaml")}, "GRPC_UDS=" + filepath.Join(broken, "a.yaml") +
			": the file is not a socket: delete it, or set GRPC_UDS to another path"},
		"socket of nowhere": {variables{"RUNTIME_ROOT": testenv.RulesRoot(t),
			"GRPC_UDS": filepath.Join(broken, "nowhere", "grpc.sock")}, "the directory " + filepath.Join(broken, "nowhere") +
			" does not exist: create it, or mount it"},
	} {
		t.Run(name, func(t *testing.T) {
			env := variables{"PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0"}
			maps.Copy(env, c.env)
			var stderr bytes.Buffer
			code := run(t, env, "", "", &stderr, &stderr)
			if code != command.ExitFailed || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("exit code %d, want 1 and %q in\n%s", code, c.want, &stderr)
			}
		})
	}
}

// TestWarningsOfSettings checks that settings and check report a contradiction, and fail with STRICT_ENVIRONMENT.
func TestWarningsOfSettings(t *testing.T) {
	const want = "REDIS_AUTH has no effect without REDIS_URL\n"
	for _, args := range []string{"settings", "settings -o json", "check " + filepath.Join(testenv.RulesRoot(t),
		"config")} {
		var stdout, stderr bytes.Buffer
		env := variables{"REDIS_AUTH": "swordfish"}
		if code := run(t, env, args, "", &stdout, &stderr); code != command.ExitOK || stderr.String() != "warning: "+want {
			t.Errorf("%s: exit code %d, stderr %q, want 0 and %q", args, code, &stderr, want)
		}
		env["STRICT_ENVIRONMENT"] = "true"
		if code := run(t, env, args, "", &stdout, &stderr); code != command.ExitFailed || !strings.Contains(stderr.String(),
			"mistakes:\n"+want) {
			t.Errorf("%s, STRICT_ENVIRONMENT: exit code %d, stderr %q, want 1 and %q", args, code, &stderr, want)
		}
	}
}

// TestEchoStrict checks that a misspelt ECHO_ADDRESS stops the start. Otherwise the upstream would listen on loopback
// only.
func TestEchoStrict(t *testing.T) {
	env := variables{"STRICT_ENVIRONMENT": "true", "EHCO_ADDRESS": "0.0.0.0:8000"}
	const want = "EHCO_ADDRESS is not a setting: did you mean ECHO_ADDRESS?"
	var stderr bytes.Buffer
	code := run(t, env, "echo", "", &stderr, &stderr)
	if code != command.ExitFailed || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d, want 1 and %q in\n%s", code, want, &stderr)
	}
}

// run runs extauthz with arguments that have no spaces.
func run(t *testing.T, env variables, args, stdin string, stdout, stderr io.Writer) (code int) {
	t.Helper()
	testenv.Setenv(t, env)
	return runHere(args, stdin, stdout, stderr)
}

// runHere runs extauthz in the environment of this process.
func runHere(args, stdin string, stdout, stderr io.Writer) (code int) {
	p := &program{command.Program{Stdin: strings.NewReader(stdin), Stdout: stdout, Stderr: stderr}}
	return p.run(strings.Fields(args))
}

// variables are environment variables by name.
type variables map[string]string
