package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestCalledAsRatelimit calls the program by the names of the binaries of envoyproxy/ratelimit, which have its flags
// and exit codes.
func TestCalledAsRatelimit(t *testing.T) {
	dir := t.TempDir()
	rules := func(name string, files ...string) string {
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, content := range files {
			if err := os.WriteFile(filepath.Join(sub, string(rune('a'+i))+".yaml"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return sub
	}
	const one = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
	const two = "domain: d\ndescriptors: [{key: l, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
	good, twice := rules("good", one), rules("twice", one, two)
	bad := rules("bad", "domain: d\ndescriptors: [{kye: k}]\n", "domain: [\n")
	empty := rules("empty")
	for _, c := range []struct {
		command string
		env     variables
		code    int
		want    string
	}{
		{"ratelimit_config_check -config_dir " + good, nil, 0, "all rate limit configs ok\n"},
		{"ratelimit_config_check --config_dir=" + good, nil, 0, "all rate limit configs ok\n"},
		{"ratelimit_config_check -config_dir " + twice, nil, 1, "b.yaml:1:9: error: "},
		{"ratelimit_config_check -config_dir " + twice + " -merge_domain_configs", nil, 0, "all rate limit configs ok\n"},
		{"ratelimit_config_check -config_dir " + twice + " -merge_domain_configs=false", nil, 1, "b.yaml:1:9: error: "},
		{"ratelimit_config_check -config_dir " + bad, nil, 1, "a.yaml:2:16: error: "},
		{"ratelimit_config_check -config_dir " + bad, nil, 1, "b.yaml:2:1: error: "},
		{"ratelimit_config_check -config_dir " + empty, nil, 0, "all rate limit configs ok\n"},
		{"ratelimit_config_check -config_dir " + dir + "/none", nil, 1, dir + "/none: no such file or directory"},
		{"ratelimit_config_check", nil, 1, "want -config_dir\nUsage of ratelimit_config_check:\n  -config_dir string\n"},
		{"ratelimit_config_check -config " + good, nil, 2, "flag provided but not defined: -config"},
		{"ratelimit_config_check " + good, nil, 2, "takes only flags"},
		{"ratelimit_config_check -h", nil, 0, "-merge_domain_configs"},
		{"ratelimit_config_check -config_dir " + good, variables{"LOG_LEVEL": "loud"}, 1, "LOG_LEVEL: want"},

		{"ratelimit_client -h", nil, 0, "-dial_string"},
		{"ratelimit_client -descriptors k", nil, 2, `want KEY=VALUE, or several with commas, not "k"`},
		{"ratelimit_client -dial_string 127.0.0.1:1 -domain d -descriptors k=v", nil, 1, "127.0.0.1:1 does not answer"},
		{"ratelimit_client -grpc-use-tls -grpc-server-ca-file /none.pem", nil, 1, "open /none.pem: no such file"},

		{"ratelimit", variables{"RUNTIME_ROOT": "/nowhere"}, 1, "/nowhere/config does not exist"},
		{"ratelimit", variables{"RUNTIME_ROOT": dir, "RUNTIME_APPDIRECTORY": "bad"}, 1, "a.yaml:2:16: error: "},
		{"ratelimit version", nil, 0, "go1."},
		{"ratelimit serv", nil, 2, `unknown subcommand "serv" (did you mean serve?)`},
		{"extauthz", variables{"RUNTIME_ROOT": "/nowhere"}, 1, "/nowhere/config does not exist"},
	} {
		t.Run(c.command, func(t *testing.T) {
			var out bytes.Buffer
			testenv.Setenv(t, c.env)
			p := &program{command.Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}}
			words := strings.Fields(c.command)
			if code := p.called(words[0], words[1:]); code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("exit code %d, want %d and %q in\n%s", code, c.code, c.want, &out)
			}
		})
	}
}

// TestLinksOfTheImage checks that the image has a link for each name, and the program knows the names of all links.
func TestLinksOfTheImage(t *testing.T) {
	loop := regexp.MustCompile(`for name in ([a-z_ ]+); do`).FindStringSubmatch(testenv.RepoFile(t, "Dockerfile"))
	if loop == nil || loop[1] != "ratelimit ratelimit_config_check ratelimit_client" {
		t.Fatalf("the Dockerfile has the links %q", loop)
	}
}

// TestDescriptor reads descriptors as clients write them.
