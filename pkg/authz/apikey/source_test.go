package apikey_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// TestSourcesEnd: after the end of a source, its keys and unknown keys are unavailable; keys of other sources pass.
func TestSourcesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const weak = "a-weak-key"
		secret := newSecret(t, pepper, "")
		set, given := records(t, secret, 3)
		for i := range set {
			set[i].Expires = time.Time{}
		}
		set[2].ID, set[2].Hash, set[2].Weak = "weak", secret.Hash(weak), true
		unknown, _ := newKey(t)
		var file, shared apikey.Source
		keys := apikey.New(apikey.Config{Secret: secret, Sources: []*apikey.Source{&file, &shared}})
		file.Replace(set[:1])
		check := func(when, key string, want error) {
			t.Helper()
			if _, err := keys.Check(key); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		}
		shared.EndAt(time.Unix(1, 0))
		check("not read yet", given[1], credential.ErrUnavailable)
		shared.Replace(set[1:])
		shared.EndAt(time.Now().Add(24 * time.Hour))
		time.Sleep(24*time.Hour - time.Microsecond)
		check("just before the end", given[1], nil)
		check("just before the end, weak", weak, nil)
		check("just before the end, unknown", unknown, credential.ErrInvalid)
		time.Sleep(time.Microsecond)
		check("at the end", given[1], credential.ErrUnavailable)
		check("at the end, weak", weak, credential.ErrUnavailable)
		check("at the end, unknown", unknown, credential.ErrUnavailable)
		check("at the end, not a key", unknown+"x", credential.ErrInvalid)
		check("at the end, in the file", given[0], nil)
		shared.EndAt(time.Now().Add(time.Second))
		check("confirmed again", given[1], nil)
		shared.EndAt(time.Time{})
		time.Sleep(1000 * time.Hour)
		check("without end", given[1], nil)
	})
}

// TestOldRecordsAreNotTaken: an older record that was restored does not replace the newer one.
func TestOldRecordsAreNotTaken(t *testing.T) {
	secret := newSecret(t, pepper, "")
	set, given := records(t, secret, 4)
	set[3].ID, set[3].Weak, set[3].Hash, given[3] = "weak", true, secret.Hash("weak"), "weak"
	var source apikey.Source
	keys := apikey.New(apikey.Config{
		Secret: secret, Sources: []*apikey.Source{&source}, Now: func() time.Time { return now },
	})
	at := func(i int, version int64, disabled bool) apikey.Record {
		r := set[i]
		r.Version, r.Disabled = version, disabled
		return r
	}
	for i, step := range []struct {
		name     string
		records  []apikey.Record
		outdated []string
		want     []error // of each key
	}{
		{
			"the first records",
			[]apikey.Record{at(0, 10, false), at(1, 11, false), at(3, 12, false)}, nil,
			[]error{nil, nil, credential.ErrInvalid, nil},
		},
		{
			"two are revoked",
			[]apikey.Record{at(0, 13, true), at(1, 11, false), at(3, 14, true)}, nil,
			[]error{credential.ErrDisabled, nil, credential.ErrInvalid, credential.ErrDisabled},
		},
		{
			"both are restored, and one is new",
			[]apikey.Record{at(0, 10, false), at(1, 11, false), at(2, 15, false), at(3, 12, false)},
			[]string{set[0].ID, "weak"}, []error{credential.ErrDisabled, nil, nil, credential.ErrDisabled},
		},
		{
			"one is removed",
			[]apikey.Record{at(1, 11, false), at(2, 15, false), at(3, 14, true)}, nil,
			[]error{credential.ErrInvalid, nil, nil, credential.ErrDisabled},
		},
		{
			"the removed one is restored",
			[]apikey.Record{at(0, 10, false), at(1, 11, false), at(2, 15, false), at(3, 14, true)},
			[]string{set[0].ID}, []error{credential.ErrInvalid, nil, nil, credential.ErrDisabled},
		},
		{
			"the removed one is newer",
			[]apikey.Record{at(0, 16, false), at(1, 11, false), at(2, 17, true), at(3, 14, true)}, nil,
			[]error{nil, nil, credential.ErrDisabled, credential.ErrDisabled},
		},
	} {
		if outdated := source.Replace(step.records); !slices.Equal(outdated, step.outdated) {
			t.Errorf("%d %s: outdated %q, want %q", i, step.name, outdated, step.outdated)
		}
		for j, want := range step.want {
			if _, err := keys.Check(given[j]); !errors.Is(err, want) {
				t.Errorf("%d %s: key %d: %v, want %v", i, step.name, j, err, want)
			}
		}
	}
}

func TestSeals(t *testing.T) {
	both, first := newSecret(t, pepper, otherPepper), newSecret(t, otherPepper, "")
	for _, data := range []string{"", "data", "a b c", "\x00\xff"} {
		sealed := both.Seal([]byte(data), "a", "b")
		if got, current, err := both.Open(sealed, "a", "b"); string(got) != data || !current || err != nil {
			t.Errorf("Open(Seal(%q)) = %q, %t, %v", data, got, current, err)
		}
		old := first.Seal([]byte(data), "a", "b")
		if got, current, err := both.Open(old, "a", "b"); string(got) != data || current || err != nil {
			t.Errorf("%q of the previous server secret: %q, %t, %v", data, got, current, err)
		}
		for _, place := range [][]string{nil, {"a"}, {"ab"}, {"a", "c"}, {"a", "b", ""}, {"", "a", "b"}} {
			if _, _, err := both.Open(sealed, place...); !errors.Is(err, apikey.ErrSeal) {
				t.Errorf("%q at %q: %v", data, place, err)
			}
		}
		if _, _, err := first.Open(sealed, "a", "b"); !errors.Is(err, apikey.ErrSeal) {
			t.Errorf("%q with another server secret: %v", data, err)
		}
		for i := range sealed {
			changed := slices.Clone(sealed)
			changed[i] ^= 1
			if _, _, err := both.Open(changed, "a", "b"); !errors.Is(err, apikey.ErrSeal) {
				t.Errorf("%q with a change at %d: %v", data, i, err)
			}
			if _, _, err := both.Open(sealed[:i], "a", "b"); !errors.Is(err, apikey.ErrSeal) {
				t.Errorf("%q cut at %d: %v", data, i, err)
			}
		}
		// A hash of an API key, which is in the same store, is not accepted as a seal.
		hash := both.Hash("a" + "b" + data)
		if _, _, err := both.Open([]byte(hash.String()+" "+data), "a", "b"); !errors.Is(err, apikey.ErrSeal) {
			t.Errorf("a hash as the seal of %q: %v", data, err)
		}
	}
}
