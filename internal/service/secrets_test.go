package service

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestRedisPasswordsAreNotShown checks that no form of REDIS_URL, with or without mistakes, shows what may be a
// password.
func TestRedisPasswordsAreNotShown(t *testing.T) {
	root := testenv.RulesRoot(t)
	for _, url := range []string{
		// Without a scheme.
		"alice:quizzebra@127.0.0.1:1", "alice:quiz@zebra@127.0.0.1:1", ":quizzebra@127.0.0.1:1", "quizzebra@127.0.0.1:1",
		"alice:quizzebra@127.0.0.1",
		"alice:quizzebra@127.0.0.1:1/0", "alice:quizzebra", "alice:quizzebra@", "@quizzebra",
		"alice%3Aquizzebra%40127.0.0.1:1", "alice:quizzebra@[::1]:1",
		"alice:quizzebra@/run/redis.sock", "/run/redis.sock?password=quizzebra", "/alice:quizzebra@127.0.0.1:1",
		"127.0.0.1:1/quizzebra", "127.0.0.1:1?password=quizzebra",
		"127.0.0.1:quizzebra", "quizzebra,127.0.0.1:1", "quizzebra 127.0.0.1:1", "//alice:quizzebra@127.0.0.1:1",
		// With half a scheme, or another one.
		"redis:alice:quizzebra@127.0.0.1:1", "redis:/alice:quizzebra@127.0.0.1:1", "unix:/alice:quizzebra@127.0.0.1:1",
		"http://alice:quizzebra@127.0.0.1:1",
		"quizzebra://127.0.0.1:1", "redis ://alice:quizzebra@127.0.0.1:1", "://alice:quizzebra@127.0.0.1:1",
		"REDIS://alice:quizzebra@127.0.0.1:1",
		// With one.
		"redis://alice:quizzebra@127.0.0.1:1", "redis://alice:quiz@zebra@127.0.0.1:1", "redis://:quizzebra@127.0.0.1:1",
		"redis://quizzebra@127.0.0.1:1",
		"redis://alice:quiz%7Aebra@127.0.0.1:1", "redis://alice:quizzebra%@127.0.0.1:1",
		"redis://alice:quizzebra%zz@127.0.0.1:1",
		"redis://alice:quiz/zebra@127.0.0.1:1", "redis://alice:quiz#zebra@127.0.0.1:1",
		"redis://alice:quiz?zebra@127.0.0.1:1", "redis://alice:12/quizzebra@127.0.0.1:1",
		"redis://alice:1#quizzebra@127.0.0.1:1", "redis://127.0.0.1:1?quizzebra=quizzebra", "redis://127.0.0.1:1/quizzebra",
		"redis://127.0.0.1:1/0/quizzebra",
		"redis://alice:quiz zebra@127.0.0.1:1", "redis://alice:quizzebra\n@127.0.0.1:1",
		"redis://alice:quizzebra@127.0.0.1:1:1", "redis://127.0.0.1:quizzebra",
		"redis://alice%3Aquizzebra%40127.0.0.1:1", "redis://127.0.0.1:1?read_timeout=quizzebra",
		"redis://127.0.0.1:1?db=quizzebra",
		"rediss://alice:quizzebra@127.0.0.1:1", "unix://alice:quizzebra@/nowhere/redis.sock",
		"unix:///nowhere/redis.sock?password=quizzebra",
		"unix:///alice:quizzebra@127.0.0.1:1", "unix://alice:quizzebra@", "unix:///nowhere?db=quizzebra",
	} {
		for _, socket := range []string{"", "unix"} {
			t.Run(socket+" "+url, func(t *testing.T) {
				env := map[string]string{
					"REDIS_URL": url, "API_KEY_SECRET": "a-server-secret-of-a-test", "LOG_LEVEL": "DEBUG", "RUNTIME_ROOT": root,
					"PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0", "HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1",
					"DRAIN_DELAY": "0s",
				}
				if socket != "" {
					env["REDIS_SOCKET_TYPE"] = socket
				}
				text := serveOnce(t, env)
				for _, part := range []string{"quizzebra", "quiz", "zebra"} {
					if strings.Contains(text, part) {
						t.Fatalf("it says %s:\n%s", part, text)
					}
				}
			})
		}
	}
}

// serveOnce runs the service until it serves or has refused to start, and returns its output.
func serveOnce(t *testing.T, env map[string]string) string {
	t.Helper()
	out := new(testenv.Output)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	testenv.Setenv(t, env)
	go func() {
		hiding := settings.HideSecrets(out)
		s, err := settings.Read()
		if err == nil {
			err = Run(ctx, Config{Settings: s, Stderr: hiding})
		}
		if err != nil {
			fmt.Fprintln(hiding, err)
		}
		done <- err
	}()
	serves := func() bool { return strings.Contains(out.String(), "msg=serving grpc=") }
	testenv.Eventually(t, func() error {
		if len(done) == 0 && !serves() {
			return fmt.Errorf("it neither serves nor ends:\n%s", out)
		}
		return nil
	}, "the start")
	cancel()
	if err := <-done; err != nil && serves() {
		t.Errorf("a server failed:\n%s", out)
	}
	return out.String()
}

// TestMisplacedSecretsAreNotShown sets each setting to a secret that belongs into another one.
func TestMisplacedSecretsAreNotShown(t *testing.T) {
	root := testenv.RulesRoot(t)
	t.Chdir(t.TempDir()) // where a socket or a snapshot is made whose path is a secret
	ServerSecret := apikey.NewServerSecret()
	key, err := apikey.NewKey("4Gd0kZ7b")
	if err != nil {
		t.Fatal(err)
	}
	canaries := map[string]string{
		"API key":              key,
		"misspelt API key":     "ea_4Gd0kZ7b_Jm2xN8vQp4RtYw6ZaBcDeFgHiKlMnOpQ1a2b3c",
		"server secret":        ServerSecret,
		"with a slash":         "Vc5+XfN6s4aj/QmT7yZ1kLp8RwE3uHs0Gd2NbVx4Jc0=",
		"URL with password":    "redis://alice:quizzebra@127.0.0.1:1/0",
		"address and password": "alice:quizzebra@127.0.0.1:1",
		"token":                "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
		"private key":          "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ\n-----END PRIVATE KEY-----\n",
		"quoted":               `redis://alice:quiz"zebra\@127.0.0.1:1/0`,
		"secret of another":    "the very same server secret",
		"password":             "Quizzebra!7",
	}
	var names []string
	for _, s := range settings.List() {
		name := s.Name
		if s.File {
			name += "_FILE"
		}
		names = append(names, name)
	}
	for _, name := range names {
		for kind, canary := range canaries {
			if kind == "password" && freeText[name] {
				continue // it is no more a mistake than any other word
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				env := map[string]string{
					"RUNTIME_ROOT": root, "PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0", "HOST": "127.0.0.1",
					"GRPC_HOST":   "127.0.0.1",
					"DRAIN_DELAY": "0s", "LOG_LEVEL": "DEBUG", "API_KEY_SECRET": canaries["secret of another"],
					"REDIS_URL": "127.0.0.1:1",
				}
				delete(env, strings.TrimSuffix(name, "_FILE"))
				env[name] = canary
				said := serveOnce(t, env)
				for _, part := range []string{canary, "quizzebra", canary[:min(len(canary), 12)], strings.ToLower(canary),
					"Quizzebra", "quiz", "MC4CAQ"} {
					if strings.Contains(said, part) {
						t.Fatalf("it says %s:\n%s", part, said)
					}
				}
			})
		}
	}
}

// freeText are settings that accept any word, so a password in them cannot be recognized.
var freeText = map[string]bool{
	"RUNTIME_ROOT": true, "RUNTIME_SUBDIRECTORY": true, "RUNTIME_APPDIRECTORY": true, "CACHE_KEY_PREFIX": true,
	"AUTHZ_DOMAIN": true,
	"GRPC_UDS":     true, "API_KEYS_FILE": true, "MEMORY_SNAPSHOT_PATH": true, "REDIS_TLS_CACERT": true,
	"REDIS_TLS_CLIENT_CERT": true,
	"REDIS_TLS_CLIENT_KEY":  true, "LIMIT_LIMIT_HEADER": true, "LIMIT_REMAINING_HEADER": true, "LIMIT_RESET_HEADER": true,
	"LIMIT_REQUEST_LIMIT_HEADER": true, "LIMIT_REQUEST_REMAINING_HEADER": true, "LIMIT_REQUEST_RESET_HEADER": true,
	"AUTHZ_HTTP_SOURCE_HEADER": true, "AUTHZ_HTTP_PRINCIPAL_HEADER": true,
}
