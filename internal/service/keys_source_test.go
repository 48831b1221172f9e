package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/test/testenv"
)

// withKeys returns rules that require API keys.
func withKeys() *loadedRules {
	key := &apikey.Credential{Source: credential.Source{Header: new("x-api-key")}}
	p := &authz.Policy{Credentials: []authz.Credential{{APIKey: key}}}
	return &loadedRules{first: rules.Set{Policies: map[string]*authz.Policy{"d": p}}}
}

// serveKeys opens the keys that an environment names and follows them until the test ends.
func serveKeys(t *testing.T, env *settings.Settings, rules *loadedRules) (*keySource, *testenv.Output) {
	t.Helper()
	s := env
	out := new(testenv.Output)
	k, err := openKeys(t.Context(), s, rules, nil, newLogger(Config{Settings: s, Stderr: out}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	k.follow(ctx, &group)
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	return k, out
}

// says waits until the check of a key returns this error, or nil.
func says(t *testing.T, k *keySource, key string, want error) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if _, err := k.keys.Check(key); !errors.Is(err, want) {
			return fmt.Errorf("it is %v, want %v", err, want) //nolint:errorlint // it is only printed, and both may be nil
		}
		return nil
	}, "the answer to a key")
}

func TestOpenKeysRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken, inYAML := filepath.Join(dir, "keys.jsonl"), filepath.Join(dir, "old.yaml")
	if err := os.WriteFile(inYAML, []byte("# Keys\nkeys:\n  - {id: 4Gd0kZ7b}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, []byte(`{"id":"canary"}`+"\n"+`{"end":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "a-server-secret-of-a-test"
	for name, c := range map[string]struct {
		env   *settings.Settings
		rules *loadedRules
		want  string
	}{
		"rules that ask for keys, and nothing else": {configured(), withKeys(),
			"export API_KEY_SECRET=$(extauthz keys secret)"},
		"rules that ask for keys, and Redis": {configured(func(s *settings.Settings) { s.Redis.Main.URL = "localhost" }),
			withKeys(),
			"the rules require API keys.\n"},
		"a file without a secret": {configured(func(s *settings.Settings) { s.Keys.File = broken }), &loadedRules{},
			"export API_KEY_SECRET=$(extauthz keys secret)"},
		"a short secret": {configured(func(s *settings.Settings) { s.Keys.Secret = "canary" }), &loadedRules{},
			"API_KEY_SECRET: the server secret has 6 bytes: want 16 or more"},
		"a short previous one": {configured(func(s *settings.Settings) {
			s.Keys.Secret = secret
			s.Keys.PreviousSecret = "canary"
		}), &loadedRules{},
			"API_KEY_SECRET_PREVIOUS: the previous server secret has 6 bytes"},
		"a file with mistakes": {configured(func(s *settings.Settings) {
			s.Keys.File = broken
			s.Keys.Secret = secret
		}),
			&loadedRules{}, "keys.jsonl:1: key"},
		"a file that is not there": {configured(func(s *settings.Settings) {
			s.Keys.File = broken + "2"
			s.Keys.Secret = secret
		}), &loadedRules{},
			"no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.env
			_, err := openKeys(t.Context(), s, c.rules, nil, newLogger(Config{Settings: s, Stderr: new(testenv.Output)}))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if name != "a file with mistakes" && err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
}

func TestTheSampleHasOneKey(t *testing.T) {
	t.Parallel()
	env := configured()
	rules := withKeys()
	rules.sample = true
	k, _ := serveKeys(t, env, rules)
	who, err := k.keys.Check("demo")
	if err != nil || who.Owner != "demo" || who.Plan != "free" || who.Limit == nil || who.Limit.Requests != 5 {
		t.Errorf("demo: %+v, %v", who, err)
	}
	if _, err := k.keys.Check("demo2"); !errors.Is(err, credential.ErrInvalid) {
		t.Errorf("another key: %v", err)
	}
	other, _ := serveKeys(t, env, &loadedRules{})
	if _, err := other.keys.Check("demo"); !errors.Is(err, credential.ErrInvalid) {
		t.Errorf("demo where the sample is not served: %v", err)
	}
}

// TestKeysAreFollowed checks that changes by `extauthz keys` take effect while requests are answered correctly.
func TestKeysAreFollowed(t *testing.T) {
	t.Parallel()
	const secret = "a-server-secret-of-a-test"
	redis := testenv.Redis(t)
	for name, env := range map[string]*settings.Settings{
		"file": configured(func(s *settings.Settings) {
			s.Keys.Secret = secret
			s.Keys.File = filepath.Join(t.TempDir(), "keys.jsonl")
		}),
		"redis": configured(func(s *settings.Settings) {
			s.Keys.Secret = secret
			s.Redis.Main.URL = redis.Addr
		}),
	} {
		t.Run(name, func(t *testing.T) {
			env.Telemetry.LogLevel = settings.LogLevel(slog.LevelDebug)
			stays := keys(t, env, "create", "--owner", "stays")
			k, out := serveKeys(t, env, withKeys())
			stop := make(chan struct{})
			var traffic sync.WaitGroup
			traffic.Go(func() {
				for tick := time.Tick(time.Millisecond); ; {
					select {
					case <-stop:
						return
					case <-tick:
						if who, err := k.keys.Check(stays); err != nil || who.Owner != "stays" {
							t.Errorf("the key that stays: %v, %v", who, err)
						}
					}
				}
			})
			key := keys(t, env, "create", "--owner", "alice")
			says(t, k, key, nil)
			id := keyPattern.FindStringSubmatch(key)[1]
			second := keys(t, env, "rotate", id)
			says(t, k, second, nil)
			says(t, k, key, nil)
			third := keys(t, env, "rotate", id, "--grace", "0s", "--end-previous")
			says(t, k, third, nil)
			says(t, k, second, credential.ErrInvalid)
			keys(t, env, "revoke", id)
			says(t, k, third, credential.ErrDisabled)
			close(stop)
			traffic.Wait()
			for _, told := range []string{stays[12:], key[12:], second[12:], third[12:], secret, "hmac-sha256"} {
				if strings.Contains(out.String(), told) {
					t.Errorf("%s in the log:\n%s", told, out)
				}
			}
		})
	}
}

// TestKeysOutlastRedis: without Redis the last copy stays active, and after a start without it no key can be checked.
func TestKeysOutlastRedis(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Redis.Main.URL = redis.Addr
	})
	key := keys(t, env, "create", "--owner", "alice")
	k, out := serveKeys(t, env, withKeys())
	if _, err := k.keys.Check(key); err != nil {
		t.Fatal(err)
	}
	redis.Kill()
	testenv.Eventually(t, logs(out, "the last copy stays active"), "word of the outage")
	if _, err := k.keys.Check(key); err != nil {
		t.Errorf("while Redis is unreachable: %v", err)
	}
	late, lateOut := serveKeys(t, env, withKeys())
	if _, err := late.keys.Check(key); !errors.Is(err, credential.ErrUnavailable) ||
		!strings.Contains(lateOut.String(), "cannot read the API keys in Redis") {
		t.Errorf("a start without Redis: %v\n%s", err, lateOut)
	}
	redis.Restart() // empty
	testenv.Eventually(t, logs(out, "redis has lost the API keys"), "word of the loss")
	if _, err := k.keys.Check(key); err != nil {
		t.Errorf("after Redis has lost its data: %v", err)
	}
	another := keys(t, env, "create", "--owner", "bob")
	says(t, k, another, nil)
	says(t, late, another, nil)
}

// TestKeysFromRedisEnd checks that without Redis its keys get 503 after API_KEYS_MAX_AGE. Keys of the file stay valid.
func TestKeysFromRedisEnd(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Redis.Main.URL = redis.Addr
		s.Keys.MaxAge = 3 * time.Second
		s.Keys.File = filepath.Join(t.TempDir(), "keys.jsonl")
	})
	inRedis, inFile := keys(t, env, "create", "--redis", "--owner", "alice"), keys(t, env, "create", "--owner", "bob")
	k, out := serveKeys(t, env, withKeys())
	says(t, k, inRedis, nil)
	redis.Kill()
	says(t, k, inRedis, credential.ErrUnavailable)
	says(t, k, inFile, nil)
	says(t, k, inFile+"x", credential.ErrInvalid) // which is no key, wherever it may be
	if err := logs(out, "the last copy stays active")(); err != nil {
		t.Error(err)
	}
	redis.Restart() // empty
	testenv.Eventually(t, logs(out, "redis has lost the API keys"), "word of the loss")
	says(t, k, inRedis, credential.ErrUnavailable)
	another := keys(t, env, "create", "--redis", "--owner", "carl")
	says(t, k, another, nil)
	says(t, k, inRedis, credential.ErrInvalid)
}

// TestTheFileWins checks that a key of the file replaces one in Redis with the same id, and that the log reports it.
func TestTheFileWins(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.jsonl")
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Keys.File = path
		s.Redis.Main.URL = testenv.Redis(t).Addr
	})
	key := keys(t, env, "create", "--owner", "alice")
	loaded, err := keyfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s := env
	secret, err := ServerSecret(s.Keys)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := RedisForKeys(s, secret)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	record := loaded[0]
	record.Owner = "mallory"
	if err := shared.Add(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	k, out := serveKeys(t, env, withKeys())
	if who, err := k.keys.Check(key); err != nil || who.Owner != "alice" ||
		!strings.Contains(out.String(), "those of the file win") {
		t.Errorf("%v, %v\n%s", who, err, out)
	}
}

// TestTheServerSecretIsReplaced checks that keys of both server secrets pass, and that the log reports keys to rotate.
func TestTheServerSecretIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.jsonl")
	const first, second = "the-first-server-secret", "the-second-server-secret"
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = first
		s.Keys.File = path
	})
	old := keys(t, env, "create", "--owner", "old")
	env.Keys.Secret = second
	env.Keys.PreviousSecret = first
	fresh := keys(t, env, "create", "--owner", "new")
	both, out := serveKeys(t, env, withKeys())
	says(t, both, old, nil)
	says(t, both, fresh, nil)
	if !strings.Contains(out.String(), "rotate them before you unset it") {
		t.Errorf("no word of the old keys:\n%s", out)
	}
	env.Keys.PreviousSecret = ""
	after, out := serveKeys(t, env, withKeys())
	says(t, after, old, credential.ErrInvalid)
	says(t, after, fresh, nil)
	if !strings.Contains(out.String(), "were made with another API_KEY_SECRET") {
		t.Errorf("no word of the keys that are refused:\n%s", out)
	}
}

// TestAFileWithMistakesChangesNothing checks that the previous keys stay active.
func TestAFileWithMistakesChangesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.jsonl")
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Keys.File = path
	})
	key := keys(t, env, "create", "--owner", "alice")
	k, out := serveKeys(t, env, withKeys())
	if err := os.WriteFile(path, []byte("keys:\n  - {id: 12345678, hash: "+key+", owner: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error {
		if !strings.Contains(out.String(), "API keys refused") {
			return errors.New("nothing in the log")
		}
		return nil
	}, "word of the mistake")
	if _, err := k.keys.Check(key); err != nil {
		t.Error(err)
	}
	if strings.Contains(out.String(), key[20:]) {
		t.Errorf("a key in the log:\n%s", out)
	}
}

// TestKeysWithoutRedis: the only line of a command that cannot reach Redis is its error.
func TestKeysWithoutRedis(t *testing.T) {
	t.Parallel()
	addr := testenv.Loopback(testenv.FreePort(t))
	for _, s := range []*settings.Settings{
		configured(func(s *settings.Settings) { s.Redis.Main.URL = addr }),
		configured(func(s *settings.Settings) { s.Redis.Main.Type, s.Redis.Main.URL = "SENTINEL", "main,"+addr }),
		configured(func(s *settings.Settings) {
			s.Redis.Main.Type = "CLUSTER"
			s.Redis.Main.URL = addr
		}),
	} {
		s.Keys.Secret = "a-server-secret-of-a-test"
		code, _, stderr := runKeys(t, s, "", "list", "--redis")
		if code != exitFailed || !strings.HasPrefix(stderr, "extauthz: keys list: Redis: ") ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d\n%s", s, code, stderr)
		}
	}
}
