package apikey_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

const (
	pepper      = "a server secret of a test"
	otherPepper = "another one, for rotation"
)

// now is the time of all tests.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newSecret(t testing.TB, current, previous string) *apikey.Secret {
	t.Helper()
	s, err := apikey.NewSecret(current, previous)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newKey makes a key and its id.
func newKey(t testing.TB) (key, id string) {
	t.Helper()
	id = apikey.NewID()
	key, err := apikey.NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return key, id
}

func TestKeysHaveTheirForm(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		key, id := newKey(t)
		if len(key) != 50 || !strings.HasPrefix(key, "ea_"+id+"_") || seen[key] || seen[id] {
			t.Fatalf("key %s with id %s", key, id)
		}
		seen[key], seen[id] = true, true
	}
	for _, id := range []string{"", "short", "ninechars", "with-das", "ümlauts"} {
		if key, err := apikey.NewKey(id); err == nil {
			t.Errorf("NewKey(%q) = %q, want an error", id, key)
		}
	}
}

// TestEveryTypoIsFound: a key with a changed character, or with two neighbours swapped, does not pass.
func TestEveryTypoIsFound(t *testing.T) {
	secret := newSecret(t, pepper, "")
	key, id := newKey(t)
	var source apikey.Source
	keys := apikey.New(apikey.Config{Secret: secret, Sources: []*apikey.Source{&source}})
	source.Replace([]apikey.Record{{ID: id, Hash: secret.Hash(key), Owner: "alice"}})
	if _, err := keys.Check(key); err != nil {
		t.Fatal(err)
	}
	check := func(typo string) {
		if who, err := keys.Check(typo); typo != key && err == nil {
			t.Errorf("%s passes for %s as %v", typo, key, who)
		}
	}
	for i := range key {
		for _, c := range "0aZ_-" {
			check(key[:i] + string(c) + key[i+1:])
		}
		check(key[:i] + key[i+1:])
		if i+1 < len(key) {
			check(key[:i] + string(key[i+1]) + string(key[i]) + key[i+2:])
		}
	}
	check(" " + key)
	check(key + "\n")
	check(strings.ToLower(key))
}

func TestInvalidSecrets(t *testing.T) {
	for _, c := range []struct{ current, previous, want string }{
		{"", "", "the server secret has 0 bytes: want 16 or more"},
		{"canary-short", "", "the server secret has 12 bytes: want 16 or more"},
		{pepper, "canary-short", "the previous server secret has 12 bytes: want 16 or more"},
		{"", pepper, "the server secret has 0 bytes: want 16 or more"},
	} {
		_, err := apikey.NewSecret(c.current, c.previous)
		if err == nil || err.Error() != c.want {
			t.Errorf("NewSecret(%q, %q): %v, want %s", c.current, c.previous, err, c.want)
		}
	}
	text := fmt.Sprintf("%v %s", newSecret(t, pepper, otherPepper), newSecret(t, pepper, ""))
	if strings.Contains(text, "test") {
		t.Errorf("a secret prints as %s", text)
	}
	if fresh := apikey.NewServerSecret(); len(fresh) != 44 {
		t.Errorf("NewServerSecret() = %q", fresh)
	}
}

func TestHashesReadBack(t *testing.T) {
	hash := newSecret(t, pepper, "").Hash("ea_x")
	var again apikey.Hash
	if err := again.UnmarshalText([]byte(hash.String())); err != nil || again != hash {
		t.Errorf("%s is read as %s, %v", hash, again, err)
	}
	for _, text := range []string{
		"", "ea_canary", "hmac-sha256", "hmac-sha256:0011223:x", "hmac-sha256:0011223z:x", "hmac-sha256:00112233:canary",
		hash.String() + "A", hash.String()[:len(hash.String())-1], "sha256" + hash.String()[11:],
	} {
		if err := again.UnmarshalText([]byte(text)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestInvalidWeakKeys(t *testing.T) {
	for _, key := range []string{"", "ea_demo", "a b", "a,b", "a\nb", "é", strings.Repeat("x", 257)} {
		if apikey.CheckWeak(key) == nil {
			t.Errorf("%q can be a weak key", key)
		}
	}
	if err := apikey.CheckWeak("demo"); err != nil {
		t.Errorf("demo: %v", err)
	}
}

// records makes keys such as operators have: each has its own owner and labels, and one of a few plans.
func records(t testing.TB, secret *apikey.Secret, count int) (records []apikey.Record, keys []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range count {
		key, id := newKey(t)
		keys = append(keys, key)
		records = append(records, apikey.Record{
			ID: id, Hash: secret.Hash(key), Owner: fmt.Sprintf("customer-%d", i), Plan: []string{"free", "pro"}[random.IntN(2)],
			Labels: map[string]string{"team": fmt.Sprintf("team-%d", i)}, Scopes: []string{"read", "write"},
			Created: now, Expires: now.Add(time.Hour),
		})
	}
	return records, keys
}
