package apikey_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// FuzzCheck: only the issued keys pass. No text makes Check panic or return another error than ErrInvalid.
func FuzzCheck(f *testing.F) {
	secret := newSecret(f, pepper, otherPepper)
	set, given := records(f, secret, 3)
	set = append(set, apikey.Record{ID: "demo", Hash: secret.Hash("demo"), Owner: "demo", Weak: true})
	given = append(given, "demo")
	keys := checker(secret, set...)
	for _, key := range given {
		f.Add(key)
		f.Add(key[:len(key)-1])
		f.Add(strings.ToUpper(key))
	}
	for _, text := range []string{
		"", "ea_", "ea_aaaaaaaa_", "ea_" + strings.Repeat("a", 47), "\x00", strings.Repeat("é", 30), set[0].Hash.String(),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, key string) {
		who, err := keys.Check(key)
		if slices.Contains(given, key) {
			if err != nil || who.Owner == "" {
				t.Errorf("Check(%q) = %v, %v", key, who, err)
			}
			return
		}
		if !errors.Is(err, credential.ErrInvalid) || who.Owner != "" {
			t.Errorf("Check(%q) = %v, %v", key, who, err)
		}
	})
}

// FuzzDecode: no content of Redis makes Decode panic. Each record that it returns can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	set, _ := records(f, newSecret(f, pepper, ""), 1)
	data, err := set[0].Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(set[0].ID, data)
	f.Add("demo", []byte(`{"hash":"x"}`))
	f.Fuzz(func(t *testing.T, id string, data []byte) {
		r, err := apikey.Decode(id, data)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := apikey.Decode(id, again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
