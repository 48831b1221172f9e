package service

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/test/testenv"
)

// attacker can read and write the Redis of the API keys, and does not know the server secret.
type attacker struct {
	t      *testing.T
	client *redis.Client
	// own is the id of the attacker's key, victim that of another key, revoked that of a key which has been revoked.
	own, victim, revoked string
	// before are all fields from before the revocation.
	before map[string]string
}

const keysHash = "rl:keys"

func (a *attacker) fields() map[string]string {
	a.t.Helper()
	fields, err := a.client.HGetAll(a.t.Context(), keysHash).Result()
	if err != nil {
		a.t.Fatal(err)
	}
	return fields
}

func (a *attacker) set(pairs ...string) {
	a.t.Helper()
	if err := a.client.HSet(a.t.Context(), keysHash, pairs).Err(); err != nil {
		a.t.Fatal(err)
	}
}

func (a *attacker) delete(fields ...string) {
	a.t.Helper()
	if err := a.client.HDel(a.t.Context(), keysHash, fields...).Err(); err != nil {
		a.t.Fatal(err)
	}
}

// edit replaces a text in the record of the attacker's own key.
func (a *attacker) edit(old, text string) {
	a.t.Helper()
	record := a.fields()[a.own]
	if !strings.Contains(record, old) {
		a.t.Fatalf("no %s in %s", old, record)
	}
	a.set(a.own, strings.Replace(record, old, text, 1))
}

// hash returns the hash of the key in a record; before it is the MAC, which has the same form.
func (a *attacker) hash(record string) string {
	found := hashPattern.FindAllString(record, -1)
	return found[len(found)-1]
}

// unsigned is the JSON of a record.
func unsigned(record string) string {
	_, data, _ := strings.Cut(record, " ")
	return data
}

// restore puts back all fields from before the revocation.
func (a *attacker) restore() {
	a.t.Helper()
	for field, value := range a.before {
		a.set(field, value)
	}
}

// TestRedisGrantsNothing checks that a user of Redis without the server secret cannot change the rights of a key. It
// checks a running replica and one that starts after the attack.
func TestRedisGrantsNothing(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for _, c := range []struct {
		name   string
		attack func(a *attacker)
		says   string // what the log of a replica that starts afterwards has
	}{
		{"another owner", func(a *attacker) { a.edit(`"owner":"mallory"`, `"owner":"root"`) }, "not signed"},
		{"another scope", func(a *attacker) { a.edit(`"scopes":["read"]`, `"scopes":["admin"]`) }, "not signed"},
		{"a second owner in the same record", func(a *attacker) { a.edit(`{`, `{"owner":"root",`) }, "not signed"},
		{"a second record behind the first", func(a *attacker) {
			r := a.fields()[a.own]
			a.set(a.own,
				r+strings.Replace(r, "mallory", "root", 1))
		}, "not signed"},
		{"the records of two ids swapped", func(a *attacker) {
			f := a.fields()
			a.set(a.own, f[a.victim], a.victim,
				f[a.own])
		}, "not signed"},
		{"another key's record under the attacker's id, with the attacker's hash", func(a *attacker) {
			f := a.fields()
			a.set(a.own, strings.Replace(f[a.victim], a.hash(f[a.victim]), a.hash(f[a.own]), 1))
		}, "not signed"},
		{"a revoked key enabled", func(a *attacker) {
			a.set(a.revoked, strings.Replace(a.fields()[a.revoked], `"disabled":true`, `"disabled":false`, 1))
		}, "not signed"},
		{"a revoked key put back", func(a *attacker) { a.set(a.revoked, a.before[a.revoked]) }, "removed or put back"},
		{"everything put back but the keys made since", func(a *attacker) { a.restore() }, "removed or put back"},
		{"a record without its MAC", func(a *attacker) { a.set(a.own, unsigned(a.fields()[a.own])) }, "not signed"},
		{"a MAC of nothing", func(a *attacker) {
			a.set(a.own, "hmac-sha256:00000000: "+unsigned(a.fields()[a.own]))
		}, "not signed"},
		{"a record cut short", func(a *attacker) { f := a.fields()[a.own]; a.set(a.own, f[:len(f)-2]) }, "not signed"},
		{"a record of nothing", func(a *attacker) { a.set(a.own, "") }, "not signed"},
		{"a key removed", func(a *attacker) { a.delete(a.victim) }, "removed or put back"},
		{"no signature of the whole", func(a *attacker) { a.delete(":generation") }, "removed or put back"},
		{"garbage for the signature of the whole", func(a *attacker) { a.set(":generation", "\x00") }, "removed or put back"},
		{"the records of an old installation", func(a *attacker) {
			for field, value := range a.fields() {
				a.set(field, unsigned(value))
			}
			a.set(":generation", "AAAA")
		}, "not signed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := configured(func(s *settings.Settings) {
				s.Keys.Secret = "a-server-secret-of-a-test"
				s.Redis.Main.URL = server.Addr
			})
			client := redis.NewClient(&redis.Options{Addr: server.Addr})
			defer client.Close()
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			idOf := func(key string) string { return keyPattern.FindStringSubmatch(key)[1] }
			own := keys(t, env, "create", "--owner", "mallory", "--scope", "read")
			victim := keys(t, env, "create", "--owner", "root", "--scope", "admin")
			revoked := keys(t, env, "create", "--owner", "fired", "--scope", "admin")
			a := &attacker{t: t, client: client, own: idOf(own), victim: idOf(victim), revoked: idOf(revoked)}
			a.before = a.fields()
			keys(t, env, "revoke", a.revoked)
			keys(t, env, "create", "--owner", "later")
			running, runningLog := serveKeys(t, env, withKeys())
			seal := a.fields()[":generation"]
			c.attack(a)
			fresh, freshLog := serveKeys(t, env, withKeys())
			if err := logs(freshLog, c.says)(); err != nil {
				t.Error(err)
			}
			if a.fields()[":generation"] == seal { // a change of the seal has it look at once, and not only after some minutes
				a.set(":generation", seal+" ")
			}
			testenv.Eventually(t, logs(runningLog, "API keys in Redis cannot be used"),
				"word of the attack in a replica that runs")
			for name, k := range map[string]*keySource{"running": running, "fresh": fresh} {
				if who, err := k.keys.Check(own); err == nil && (who.Owner != "mallory" ||
					!slices.Equal(who.Scopes, []string{"read"})) {
					t.Errorf("%s: the attacker's key is %s with %v", name, who.Owner, who.Scopes)
				}
				if who, err := k.keys.Check(revoked); err == nil {
					t.Errorf("%s: the revoked key passes as %s", name, who.Owner)
				}
				if who, err := k.keys.Check(victim); err == nil && who.Owner != "root" {
					t.Errorf("%s: the victim's key is %s", name, who.Owner)
				}
			}
			// A running replica keeps the records that it had before the attack.
			if who, err := running.keys.Check(own); err != nil || who.Owner != "mallory" {
				t.Errorf("running: %v, %v", who, err)
			}
			if _, err := running.keys.Check(revoked); !errors.Is(err, credential.ErrDisabled) {
				t.Errorf("running: the revoked key: %v", err)
			}
		})
	}
}

// TestKeysPutBack restores all keys to the state before a revocation. Then the operator creates a key, which signs that
// state. A replica that has seen the revocation still refuses the revoked key.
func TestKeysPutBack(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Redis.Main.URL = server.Addr
	})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	revoked := keys(t, env, "create", "--owner", "fired")
	id := keyPattern.FindStringSubmatch(revoked)[1]
	a := &attacker{t: t, client: client}
	a.before = a.fields()
	keys(t, env, "revoke", id)
	k, log := serveKeys(t, env, withKeys())
	says(t, k, revoked, credential.ErrDisabled)
	a.restore()
	testenv.Eventually(t, logs(log, "an older state was put back"), "word of the older state")
	says(t, k, revoked, credential.ErrDisabled)
	another := keys(t, env, "create", "--owner", "another")
	says(t, k, another, nil)
	says(t, k, revoked, credential.ErrDisabled)
	if err := logs(log, `an old state was restored" count=1 first=`+id)(); err != nil {
		t.Error(err)
	}
	// The operator revokes it again, and that is new.
	keys(t, env, "revoke", id)
	testenv.Eventually(t, func() error {
		if n := k.refused.Load(); n != 0 {
			return fmt.Errorf("%d keys are refused", n)
		}
		return nil
	}, "no key to be refused")
	says(t, k, revoked, credential.ErrDisabled)
}

// TestKeysAreSigned checks that unsigned keys can be signed only in the state that the operator has listed.
func TestKeysAreSigned(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Redis.Main.URL = server.Addr
	})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	key := keys(t, env, "create", "--owner", "alice")
	id := keyPattern.FindStringSubmatch(key)[1]
	a := &attacker{t: t, client: client, own: id}
	a.set(id, unsigned(a.fields()[id]), ":generation", "of a version that did not sign", "garbage", "x")
	k, _ := serveKeys(t, env, withKeys())
	says(t, k, key, credential.ErrUnavailable)
	run := func(want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := runKeys(t, env, "", args...)
		if code != want {
			t.Errorf("keys %v: exit code %d, want %d\n%s", args, code, want, stderr)
		}
		return stdout + stderr
	}
	for _, change := range [][]string{{"create", "--owner", "bob"}, {"revoke", id}, {"rotate", id}, {"sign"}} {
		if said := run(exitFailed, change...); !strings.Contains(said, "`extauthz keys list --redis`") {
			t.Errorf("%v: %s", change, said)
		}
	}
	list := run(exitFailed, "list")
	state := regexp.MustCompile(`extauthz keys sign --accept ([0-9a-f]{32})\n`).FindStringSubmatch(list)
	if state == nil || !strings.Contains(list, "alice  -     valid, not signed") {
		t.Fatalf("the list: %s", list)
	}
	a.edit("alice", "root")
	if said := run(exitFailed, "sign", "--accept", state[1]); !strings.Contains(said,
		"the keys have changed: their state is") {
		t.Errorf("another state was signed: %s", said)
	}
	a.edit("root", "alice")
	if said := run(exitOK, "sign", "--accept", state[1]); !strings.Contains(said,
		`Removed records that could not be read, and weak keys that were not signed: "garbage"`) ||
		!strings.Contains(said, "1 key in Redis: all are signed") {
		t.Error(said)
	}
	says(t, k, key, nil)
	run(exitOK, "list")
	run(exitOK, "sign")
	if said := run(exitUsage, "sign", "--file", "keys.jsonl"); !strings.Contains(said, "only keys in Redis are signed") {
		t.Error(said)
	}
}

// TestForgedKeysAreNotSigned checks that signing keys as they are gives no key of an attacker the rights of another.
// The operator cannot see which key a hash belongs to.
func TestForgedKeysAreNotSigned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		attack func(a *attacker, weak map[string]string)
		signs  bool
		says   string
	}{
		{"the attacker's hash in the weak record of another", func(a *attacker, weak map[string]string) {
			a.set("root-weak", strings.Replace(weak["root-weak"], a.hash(weak["root-weak"]), a.hash(weak["own-weak"]), 1))
		}, false, `the keys "own-weak" and "root-weak" have the same hash`},
		{"the same without the record that it is from", func(a *attacker, weak map[string]string) {
			a.set("root-weak", strings.Replace(weak["root-weak"], a.hash(weak["root-weak"]), a.hash(weak["own-weak"]), 1))
			a.delete("own-weak")
		}, true, `"root-weak"`},
		{"a new weak record", func(a *attacker, weak map[string]string) {
			a.set("newer", strings.Replace(weak["own-weak"], "mallory", "root", 1))
			a.delete("own-weak")
		}, true, `"newer"`},
		{"the attacker's hash in the record of another", func(a *attacker, _ map[string]string) {
			f := a.fields()
			a.set(a.victim, strings.Replace(f[a.victim], a.hash(f[a.victim]), a.hash(f[a.own]), 1))
		}, false, "have the same hash"},
		{"the attacker's hash as the one before in the record of another", func(a *attacker, _ map[string]string) {
			f := a.fields()
			a.set(a.victim, strings.Replace(f[a.victim], `{`,
				`{"previous":{"hash":"`+a.hash(f[a.own])+`","valid_until":"2999-01-01T00:00:00Z"},`, 1))
		}, false, "have the same hash"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := configured(func(s *settings.Settings) {
				s.Keys.Secret = "a-server-secret-of-a-test"
				s.Redis.Main.URL = testenv.Redis(t).Addr
			})
			client := redis.NewClient(&redis.Options{Addr: env.Redis.Main.URL})
			defer client.Close()
			run := func(stdin string, want int, args ...string) string {
				t.Helper()
				code, stdout, stderr := runKeys(t, env, stdin, args...)
				if code != want {
					t.Errorf("keys %v: exit code %d, want %d\n%s", args, code, want, stderr)
				}
				return stdout + stderr
			}
			own := keys(t, env, "create", "--owner", "mallory")
			victim := keys(t, env, "create", "--owner", "root")
			run("own-secret-text", exitOK, "create", "--owner", "mallory", "--weak", "own-weak")
			run("root-secret-text", exitOK, "create", "--owner", "root", "--weak", "root-weak", "--label", "team=ops")
			a := &attacker{t: t, client: client, own: keyPattern.FindStringSubmatch(own)[1],
				victim: keyPattern.FindStringSubmatch(victim)[1]}
			c.attack(a, a.fields())
			list := run("", exitFailed, "list")
			state := regexp.MustCompile(`extauthz keys sign --accept ([0-9a-f]{32})\n`).FindStringSubmatch(list)
			if state == nil || !strings.Contains(list, "not signed") {
				t.Fatalf("the list: %s", list)
			}
			code := exitFailed
			if c.signs {
				code = exitOK
			}
			if said := run("", code, "sign", "--accept", state[1]); !strings.Contains(said, c.says) {
				t.Errorf("got %s\nwant %s", said, c.says)
			}
			k, _ := serveKeys(t, env, withKeys())
			for _, key := range []string{own, "own-secret-text"} {
				if who, err := k.keys.Check(key); err == nil && who.Owner != "mallory" {
					t.Errorf("the attacker's key passes as %s", who.Owner)
				}
			}
		})
	}
}

// TestKeysInRedisWithANewServerSecret signs records of the previous server secret with the current one. After that the
// previous secret is not needed.
func TestKeysInRedisWithANewServerSecret(t *testing.T) {
	t.Parallel()
	const first, second = "the-first-server-secret", "the-second-server-secret"
	env := configured(func(s *settings.Settings) {
		s.Keys.Secret = first
		s.Redis.Main.URL = testenv.Redis(t).Addr
	})
	revoked, rotated := keys(t, env, "create", "--owner", "fired"), keys(t, env, "create", "--owner", "alice")
	keys(t, env, "revoke", keyPattern.FindStringSubmatch(revoked)[1])
	env.Keys.Secret = second
	env.Keys.PreviousSecret = first
	both, log := serveKeys(t, env, withKeys())
	says(t, both, rotated, nil)
	says(t, both, revoked, credential.ErrDisabled)
	if err := logs(log, "run `extauthz keys sign` before you unset it")(); err != nil {
		t.Error(err)
	}
	fresh := keys(t, env, "rotate", keyPattern.FindStringSubmatch(rotated)[1])
	keys(t, env, "sign")
	says(t, both, fresh, nil)
	env.Keys.PreviousSecret = ""
	after, log := serveKeys(t, env, withKeys())
	says(t, after, fresh, nil)
	says(t, after, rotated, credential.ErrInvalid)
	if strings.Contains(log.String(), "not signed") {
		t.Errorf("keys are refused:\n%s", log)
	}
	// Without that, nothing is signed with a secret that the service knows.
	env.Keys.Secret = "a-third-server-secret"
	other, log := serveKeys(t, env, withKeys())
	says(t, other, fresh, credential.ErrUnavailable)
	if err := logs(log, "not signed with API_KEY_SECRET, or changed since")(); err != nil {
		t.Error(err)
	}
}

// logs reports whether a log has a text.
func logs(out *testenv.Output, text string) func() error {
	return func() error {
		if !strings.Contains(out.String(), text) {
			return fmt.Errorf("no %q in\n%s", text, out)
		}
		return nil
	}
}
