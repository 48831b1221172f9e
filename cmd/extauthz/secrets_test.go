package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// TestRedisPasswordsAreNotShown: however REDIS_URL is written, and whatever is wrong with it, nothing shows what may be a password.
func TestRedisPasswordsAreNotShown(t *testing.T) {
	for _, url := range []string{
		// Without a scheme.
		"alice:quizzebra@127.0.0.1:1", "alice:quiz@zebra@127.0.0.1:1", ":quizzebra@127.0.0.1:1", "quizzebra@127.0.0.1:1", "alice:quizzebra@127.0.0.1",
		"alice:quizzebra@127.0.0.1:1/0", "alice:quizzebra", "alice:quizzebra@", "@quizzebra", "alice%3Aquizzebra%40127.0.0.1:1", "alice:quizzebra@[::1]:1",
		"alice:quizzebra@/run/redis.sock", "/run/redis.sock?password=quizzebra", "/alice:quizzebra@127.0.0.1:1", "127.0.0.1:1/quizzebra", "127.0.0.1:1?password=quizzebra",
		"127.0.0.1:quizzebra", "quizzebra,127.0.0.1:1", "quizzebra 127.0.0.1:1", "//alice:quizzebra@127.0.0.1:1",
		// With half a scheme, or another one.
		"redis:alice:quizzebra@127.0.0.1:1", "redis:/alice:quizzebra@127.0.0.1:1", "unix:/alice:quizzebra@127.0.0.1:1", "http://alice:quizzebra@127.0.0.1:1",
		"quizzebra://127.0.0.1:1", "redis ://alice:quizzebra@127.0.0.1:1", "://alice:quizzebra@127.0.0.1:1", "REDIS://alice:quizzebra@127.0.0.1:1",
		// With one.
		"redis://alice:quizzebra@127.0.0.1:1", "redis://alice:quiz@zebra@127.0.0.1:1", "redis://:quizzebra@127.0.0.1:1", "redis://quizzebra@127.0.0.1:1",
		"redis://alice:quiz%7Aebra@127.0.0.1:1", "redis://alice:quizzebra%@127.0.0.1:1", "redis://alice:quizzebra%zz@127.0.0.1:1",
		"redis://alice:quiz/zebra@127.0.0.1:1", "redis://alice:quiz#zebra@127.0.0.1:1", "redis://alice:quiz?zebra@127.0.0.1:1", "redis://alice:12/quizzebra@127.0.0.1:1",
		"redis://alice:1#quizzebra@127.0.0.1:1", "redis://127.0.0.1:1?quizzebra=quizzebra", "redis://127.0.0.1:1/quizzebra", "redis://127.0.0.1:1/0/quizzebra",
		"redis://alice:quiz zebra@127.0.0.1:1", "redis://alice:quizzebra\n@127.0.0.1:1", "redis://alice:quizzebra@127.0.0.1:1:1", "redis://127.0.0.1:quizzebra",
		"redis://alice%3Aquizzebra%40127.0.0.1:1", "redis://127.0.0.1:1?read_timeout=quizzebra", "redis://127.0.0.1:1?db=quizzebra",
		"rediss://alice:quizzebra@127.0.0.1:1", "unix://alice:quizzebra@/nowhere/redis.sock", "unix:///nowhere/redis.sock?password=quizzebra",
		"unix:///alice:quizzebra@127.0.0.1:1", "unix://alice:quizzebra@", "unix:///nowhere?db=quizzebra",
	} {
		for _, socket := range []string{"", "unix"} {
			t.Run(socket+" "+url, func(t *testing.T) {
				setenv(t, map[string]string{"REDIS_URL": url, "API_KEY_SECRET": "a-server-secret-of-a-test", "LOG_LEVEL": "DEBUG"})
				if socket != "" {
					t.Setenv("REDIS_SOCKET_TYPE", socket)
				}
				out := new(testenv.Output)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				text := openWith(ctx, t, out)
				for _, part := range []string{"quizzebra", "quiz", "zebra"} {
					if said := text + out.String(); strings.Contains(said, part) {
						t.Fatalf("it says %s:\n%s", part, said)
					}
				}
			})
		}
	}
}

// openWith does what the service does with Redis at its start, and returns the error, "" for none.
func openWith(ctx context.Context, t *testing.T, out *testenv.Output) string {
	t.Helper()
	s, _, err := readSettings()
	if err != nil {
		return err.Error()
	}
	log := newLogger(s, out)
	redis.SetLogger(quietRedis{log})
	st, err := openStores(s, log)
	if err != nil {
		return err.Error()
	}
	defer st.close(log)
	if err := st.checkRedis(ctx, s); err != nil {
		return err.Error()
	}
	k, err := openKeys(ctx, s, &ruleSource{}, log)
	if err != nil {
		return err.Error()
	}
	defer k.client.Close()
	return ""
}

// TestMisplacedSecretsAreNotShown sets every setting, one after the other, to what is somebody's secret and no value for it.
func TestMisplacedSecretsAreNotShown(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	rules := []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), rules, 0o600); err != nil {
		t.Fatal(err)
	}
	serverSecret, err := apikey.NewServerSecret()
	if err != nil {
		t.Fatal(err)
	}
	canaries := map[string]string{
		"API key":              "ea_4Gd0kZ7b_Jm2xN8vQp4RtYw6ZaBcDeFgHiKlMnOpQ1a2b3c",
		"server secret":        serverSecret,
		"URL with password":    "redis://alice:quizzebra@127.0.0.1:1/0",
		"address and password": "alice:quizzebra@127.0.0.1:1",
		"token":                "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
		"secret of another":    "the very same server secret",
		"password":             "Quizzebra!7",
	}
	var names []string
	for field := range fields() {
		name := field.Tag.Get("envconfig")
		if field.Tag.Get("secret") != "" {
			names = append(names, name+"_FILE")
			continue
		}
		names = append(names, name)
	}
	names = append(names, slices.Collect(maps.Keys(mustNotBeIgnored))...)
	for _, name := range names {
		for kind, canary := range canaries {
			if kind == "password" && freeText[name] {
				continue // it is no more a mistake than any other word
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				setenv(t, map[string]string{
					"RUNTIME_ROOT": root, "PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0", "HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1",
					"DRAIN_DELAY": "0s", "LOG_LEVEL": "DEBUG", "API_KEY_SECRET": canaries["secret of another"], "REDIS_URL": "127.0.0.1:1",
				})
				t.Setenv(strings.TrimSuffix(name, "_FILE"), "")
				os.Unsetenv(strings.TrimSuffix(name, "_FILE"))
				t.Setenv(name, canary)
				out := new(testenv.Output)
				s, warnings, err := readSettings()
				if err == nil {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					err = run(ctx, s, newLogger(s, out), out)
				}
				said := fmt.Sprint(err, warnings, out)
				for _, part := range []string{canary, "quizzebra", canary[:min(len(canary), 12)], strings.ToLower(canary), "Quizzebra"} {
					if strings.Contains(said, part) {
						t.Fatalf("it says %s:\n%s", part, said)
					}
				}
			})
		}
	}
}

// freeText are settings for which any word is right: nothing tells a password from it.
var freeText = map[string]bool{
	"RUNTIME_ROOT": true, "RUNTIME_SUBDIRECTORY": true, "RUNTIME_APPDIRECTORY": true, "CACHE_KEY_PREFIX": true, "AUTHZ_DOMAIN": true,
	"GRPC_UDS": true, "API_KEYS_FILE": true, "MEMORY_SNAPSHOT_PATH": true, "REDIS_TLS_CACERT": true, "REDIS_TLS_CLIENT_CERT": true,
	"REDIS_TLS_CLIENT_KEY": true, "LIMIT_LIMIT_HEADER": true, "LIMIT_REMAINING_HEADER": true, "LIMIT_RESET_HEADER": true,
	"AUTHZ_HTTP_SOURCE_HEADER": true, "AUTHZ_HTTP_PRINCIPAL_HEADER": true,
}
