package apikey_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// checker returns Keys with one source of records and the time of the tests.
func checker(secret *apikey.Secret, records ...apikey.Record) *apikey.Keys {
	source := new(apikey.Source)
	source.Replace(records)
	return apikey.New(apikey.Config{
		Secret: secret, Sources: []*apikey.Source{source}, Now: func() time.Time { return now },
	})
}

func TestCheck(t *testing.T) {
	secret, former := newSecret(t, pepper, otherPepper), newSecret(t, otherPepper, "")
	foreign := newSecret(t, "the secret of another service", "")
	key, id := newKey(t)
	older, err := apikey.NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := newKey(t)
	rotated := func(until time.Time) apikey.Record {
		return apikey.Record{Hash: secret.Hash(key), Previous: &apikey.Previous{Hash: former.Hash(older), ValidUntil: until}}
	}
	for _, c := range []struct {
		name   string
		record apikey.Record
		key    string
		want   error
	}{
		{"a valid key", apikey.Record{Hash: secret.Hash(key)}, key, nil},
		{"one made with the previous server secret", apikey.Record{Hash: former.Hash(key)}, key, nil},
		{"one made with an unknown server secret", apikey.Record{Hash: foreign.Hash(key)}, key, credential.ErrInvalid},
		{"a wrong secret with the right id", apikey.Record{Hash: secret.Hash(key)}, older, credential.ErrInvalid},
		{"an unknown id", apikey.Record{Hash: secret.Hash(key)}, other, credential.ErrInvalid},
		{"a wrong checksum", apikey.Record{Hash: secret.Hash(key)}, key[:49] + "?", credential.ErrInvalid},
		{"nothing", apikey.Record{Hash: secret.Hash(key)}, "", credential.ErrInvalid},
		{"disabled", apikey.Record{Hash: secret.Hash(key), Disabled: true}, key, credential.ErrDisabled},
		{"disabled, with a wrong secret", apikey.Record{Hash: secret.Hash(key), Disabled: true}, older,
			credential.ErrInvalid},
		{"expired", apikey.Record{Hash: secret.Hash(key), Expires: now}, key, credential.ErrExpired},
		{"expired, with a wrong secret", apikey.Record{Hash: secret.Hash(key), Expires: now}, older, credential.ErrInvalid},
		{"just before its end", apikey.Record{Hash: secret.Hash(key), Expires: now.Add(time.Microsecond)}, key, nil},
		{"before 1970", apikey.Record{Hash: secret.Hash(key), Expires: time.Unix(-1, 0)}, key, credential.ErrExpired},
		{"too early", apikey.Record{Hash: secret.Hash(key), NotBefore: now.Add(time.Microsecond)}, key, credential.ErrNotYet},
		{"from its first moment", apikey.Record{Hash: secret.Hash(key), NotBefore: now}, key, nil},
		{"the new one after a rotation", rotated(now.Add(time.Hour)), key, nil},
		{"the old one after a rotation", rotated(now.Add(time.Hour)), older, nil},
		{"the new one when the grace is over", rotated(now), key, nil},
		{"the old one when the grace is over", rotated(now), older, credential.ErrInvalid},
		{"the hash itself", apikey.Record{Hash: secret.Hash(key)}, secret.Hash(key).String(), credential.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.record.ID, c.record.Owner = id, "alice"
			who, err := checker(secret, c.record).Check(c.key)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			want := credential.Identity{}
			if err == nil {
				want = credential.Identity{Method: "api_key", Owner: "alice", KeyID: id}
			}
			if diff := cmp.Diff(want, who); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	secret := newSecret(t, pepper, "")
	key, id := newKey(t)
	limit := ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Minute}
	record := apikey.Record{
		ID: id, Hash: secret.Hash(key), Owner: "alice", Plan: "pro",
		Labels: map[string]string{"team": "a", "region": "eu"}, Scopes: []string{"read", "write"}, Limit: &limit,
	}
	who, err := checker(secret, record).Check(key)
	want := credential.Identity{
		Method: "api_key", Owner: "alice", Plan: "pro", KeyID: id,
		Labels: record.Labels, Scopes: record.Scopes, Limit: &limit,
	}
	if diff := cmp.Diff(want, who); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestWeakKeys(t *testing.T) {
	secret := newSecret(t, pepper, otherPepper)
	keys := checker(secret,
		apikey.Record{ID: "demo", Hash: secret.Hash("demo"), Owner: "demo", Weak: true},
		apikey.Record{ID: "old", Hash: newSecret(t, otherPepper, "").Hash("sesame"), Owner: "old", Weak: true},
		apikey.Record{ID: "off", Hash: secret.Hash("off"), Owner: "off", Weak: true, Disabled: true},
	)
	for _, c := range []struct {
		key, owner string
		want       error
	}{
		{"demo", "demo", nil},
		{"sesame", "old", nil},
		{"off", "", credential.ErrDisabled},
		{"Demo", "", credential.ErrInvalid},
		{"demo ", "", credential.ErrInvalid},
		{"old", "", credential.ErrInvalid}, // an id is not a key
	} {
		if who, err := keys.Check(c.key); !errors.Is(err, c.want) || who.Owner != c.owner {
			t.Errorf("Check(%q) = %q, %v; want %q, %v", c.key, who.Owner, err, c.owner, c.want)
		}
	}
}

// TestOnlyWeakRecordsTakeWeakKeys: a record that is not marked as weak admits no key of another form.
func TestOnlyWeakRecordsTakeWeakKeys(t *testing.T) {
	secret := newSecret(t, pepper, "")
	_, id := newKey(t)
	keys := checker(secret, apikey.Record{ID: id, Hash: secret.Hash("demo"), Owner: "demo"})
	if _, err := keys.Check("demo"); !errors.Is(err, credential.ErrInvalid) {
		t.Error(err)
	}
}

func TestTheFirstSourceWins(t *testing.T) {
	secret := newSecret(t, pepper, "")
	key, id := newKey(t)
	var first, second apikey.Source
	keys := apikey.New(apikey.Config{Secret: secret, Sources: []*apikey.Source{&first, &second}})
	owner := func() string {
		who, _ := keys.Check(key)
		return who.Owner
	}
	record := apikey.Record{ID: id, Hash: secret.Hash(key), Owner: "second"}
	if owner() != "" {
		t.Error("empty sources admit a key")
	}
	second.Replace([]apikey.Record{record})
	if owner() != "second" {
		t.Errorf("owner %q, want that of the second source", owner())
	}
	record.Owner = "first"
	first.Replace([]apikey.Record{record})
	if owner() != "first" {
		t.Errorf("owner %q, want that of the first source", owner())
	}
	record.Disabled = true
	first.Replace([]apikey.Record{record})
	if _, err := keys.Check(key); !errors.Is(err, credential.ErrDisabled) {
		t.Errorf("disabled in the first source: %v", err)
	}
	if n, example := second.Common(&first); n != 1 || example != id {
		t.Errorf("%d keys are in both sources, such as %q; want 1, %s", n, example, id)
	}
	if n, _ := second.Common(new(apikey.Source)); n != 0 {
		t.Errorf("%d keys are in both sources, want none", n)
	}
}

// TestReplaceUnderTraffic: while the keys are replaced, a key that is in all sets always passes, and one in none never.
func TestReplaceUnderTraffic(t *testing.T) {
	secret := newSecret(t, pepper, "")
	set, given := records(t, secret, 20)
	unknown, _ := newKey(t)
	source := new(apikey.Source)
	keys := apikey.New(apikey.Config{
		Secret: secret, Sources: []*apikey.Source{source}, Now: func() time.Time { return now },
	})
	source.Replace(set)
	var traffic sync.WaitGroup
	for range 4 {
		traffic.Go(func() {
			for range 5_000 {
				if who, err := keys.Check(given[0]); err != nil || who.Owner != "customer-0" {
					t.Errorf("the key that stays: %v, %v", who.Owner, err)
				}
				if _, err := keys.Check(unknown); !errors.Is(err, credential.ErrInvalid) {
					t.Errorf("the unknown key: %v", err)
				}
			}
		})
	}
	for i := range 500 {
		source.Replace(set[:1+i%len(set)])
	}
	traffic.Wait()
}

func TestStats(t *testing.T) {
	secret := newSecret(t, pepper, otherPepper)
	hash, old := secret.Hash("x"), newSecret(t, otherPepper, "").Hash("x")
	set := []apikey.Record{
		{ID: "aaaaaaa1", Hash: hash, Expires: now.Add(8 * 24 * time.Hour)},
		{ID: "aaaaaaa2", Hash: hash, Expires: now.Add(6 * 24 * time.Hour)},
		{ID: "aaaaaaa3", Hash: hash, Expires: now},
		{ID: "aaaaaaa4", Hash: hash, Disabled: true},
		{ID: "aaaaaaa5", Hash: hash, NotBefore: now.Add(time.Hour)},
		{
			ID: "aaaaaaa6", Hash: old,
			Previous: &apikey.Previous{Hash: hash, ValidUntil: now.Add(1)},
		},
		{ID: "aaaaaaa7", Hash: newSecret(t, "an unknown server secret", "").Hash("x")},
		{ID: "aaaaaaa8", Hash: hash, Previous: &apikey.Previous{Hash: old, ValidUntil: now.Add(time.Second)}},
		{ID: "aaaaaaa9", Hash: hash, Previous: &apikey.Previous{Hash: old, ValidUntil: now}},
		{ID: "demo", Hash: hash, Weak: true},
	}
	want := apikey.Stats{Keys: 10, Weak: 1, Expiring: 1, Foreign: 1, Outdated: 2}
	if diff := cmp.Diff(want, checker(secret, set...).Stats()); diff != "" {
		t.Error(diff)
	}
}
