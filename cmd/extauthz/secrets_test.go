package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/testenv"
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
