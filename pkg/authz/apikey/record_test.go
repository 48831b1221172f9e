package apikey_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

func TestRecordsReadBack(t *testing.T) {
	hash := newSecret(t, pepper, "").Hash("x")
	for _, r := range []apikey.Record{
		{ID: "aaaaaaaa", Hash: hash, Owner: "alice"},
		{
			ID: "aaaaaaaa", Hash: hash, Owner: "alice", Plan: "pro",
			Labels: map[string]string{"a": "b"}, Scopes: []string{"read", "write"},
			NotBefore: now, Expires: now.Add(time.Hour), Created: now, Disabled: true,
			Limit: &ratelimit.LimitSpec{
				Requests: 5, Unit: descriptors.Minute, Multiplier: 2, Algorithm: bucket.TokenBucket, Burst: 10,
			},
			Previous: &apikey.Previous{Hash: hash, ValidUntil: now},
		},
		{
			ID: "demo", Hash: hash, Owner: "demo", Weak: true,
			Limit: &ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Month, Calendar: "Europe/Berlin"},
		},
	} {
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := apikey.Decode(r.ID, data)
		if diff := cmp.Diff(r, again, cmp.Comparer(func(a, b apikey.Hash) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%s: %v %s", data, err, diff)
		}
	}
}

// TestDecodeRefuses: Redis may hold any content. Messages never show its values.
func TestDecodeRefuses(t *testing.T) {
	hash := newSecret(t, pepper, "").Hash("x").String()
	for _, c := range []struct{ data, want string }{
		{``, "not readable"},
		{`[]`, "not readable: want a JSON object"},
		{`{"id":"aaaaaaaa","disabled":"canary"}`, "not readable: disabled: want true or false"},
		{`{"id":"aaaaaaaa","labels":{"a":1}}`, "not readable: labels: want a text"},
		{`{"id":"aaaaaaaa","scopes":{}}`, "not readable: scopes: want a list"},
		{`{"id":"aaaaaaaa","limit":[]}`, "not readable: limit: want a JSON object"},
		{`{"id":"aaaaaaaa","limit":{"requests_per_unit":1.5}}`, "not readable: limit.requests_per_unit: want a whole number"},
		{`{"id":"aaaaaaaa","limit":{"unit_multiplier":-1}}`, "not readable: limit.unit_multiplier: want a whole number"},
		{`{"hash":"` + hash + `","owner":"a"}}`, "text after the record"},
		{`{"hash":"canary","owner":"a"}`, "want hmac-sha256:"},
		{`{"hash":{"canary":1},"owner":"a"}`, "not readable: hash: want a text"},
		{`{"hash":"` + hash + `","owner":"a","ip":"canary"}`, `unknown field "ip"`},
		{`{"hash":"` + hash + `","owner":"a","disabled":true,"disabled":false}`, "the field `disabled` appears twice"},
		{`{"hash":"` + hash + `","owner":"a","disabled":true,"Disabled":false}`, "unknown field `Disabled`"},
		{`{"hash":"` + hash + `","owner":"a","disabled":true,"di\u017fabled" : false}`, "unknown field `di\\u017fabled`"},
		{
			`{"hash":"` + hash + `","owner":"a","limit":{"unit":"day","requests_per_unit":1,"requests_per_unit":9}}`,
			"the field `requests_per_unit` appears twice",
		},
		{`{"hash":"` + hash + `","owner":"a","labels":{"canary":"1","can\u0061ry":"2"}}`, "a label appears twice"},
		{`{"hash":"` + hash + `","owner":"a` + "\xff" + `"}`, "not UTF-8"},
		{`{"hash":"` + hash + `","owner":"a","version":9223372036854775807}`, "`version` cannot be 9223372036854775807"},
		{`{"hash":"` + hash + `","owner":"a","version":-1}`, "`version` cannot be -1"},
		{`{"hash":"` + hash + `"}`, "an API key without `owner`"},
		{`{"owner":"a"}`, "an API key without `hash`"},
		{`{"hash":"` + hash + `","owner":"a","expires":"canary"}`, "not a time"},
		{
			`{"hash":"` + hash + `","owner":"a","limit":{"requests_per_unit":1,"unit":"canary"}}`,
			"not readable: limit.unit: unknown unit: want one of second",
		},
		{
			`{"hash":"` + hash + `","owner":"a","limit":{"unit":"day","algorithm":"canary"}}`,
			"not readable: limit.algorithm: unknown algorithm: want one of sliding_window",
		},
		{`{"hash":"` + hash + `","owner":"a","limit":{"requests_per_unit":-1,"unit":"day"}}`, "-1 requests"},
		{
			`{"hash":"` + hash + `","owner":"a","previous":{"valid_until":"2026-01-01T00:00:00Z"}}`,
			"`previous` without `hash`",
		},
		{
			`{"hash":"` + hash + `","owner":"a","not_before":"2026-01-02T00:00:00Z","expires":"2026-01-01T00:00:00Z"}`,
			"`expires` is not after `not_before`",
		},
		{`{"hash":"` + hash + `","owner":"a\u0000"}`, "without control characters"},
		{`{"hash":"` + hash + `","owner":"a","scopes":["a b"]}`, "want one word"},
		{`{"hash":"` + hash + `","owner":"root "}`, "`owner` cannot be `root ` (want a text without white space at its ends"},
		{
			`{"hash":"` + hash + `","owner":"a","plan":"\tgold"}`,
			"`plan` cannot be ` gold` (want a text without white space at its ends",
		},
	} {
		_, err := apikey.Decode("aaaaaaaa", []byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s", c.data, err, c.want)
		}
	}
	if _, err := apikey.Decode("aaaaaaaa", []byte(`{"id":"bbbbbbbb","hash":"`+hash+`","owner":"a"}`)); err == nil {
		t.Error("the record of another id is taken")
	}
	for _, id := range []string{"", "short", "with/sla"} {
		if _, err := apikey.Decode(id, []byte(`{"hash":"`+hash+`","owner":"a"}`)); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
}

func TestLimitsOfKeys(t *testing.T) {
	for _, c := range []struct {
		limit ratelimit.LimitSpec
		want  string
	}{
		{ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Minute}, ""},
		{ratelimit.LimitSpec{Requests: 0, Unit: descriptors.Minute}, ""},
		{ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Minute, Burst: 20}, ""},
		{ratelimit.LimitSpec{Requests: 5}, "(or minute, hour, day, week, month, year)"},
		{ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Year, Multiplier: 1000}, "cannot be counted exactly: at most 77"},
		{
			ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Day, Algorithm: bucket.FixedWindow, Burst: 5},
			"`burst` has no meaning for fixed_window",
		},
		{ratelimit.LimitSpec{Requests: 1 << 40, Unit: descriptors.Day}, "at most 4294967295"},
	} {
		err := apikey.Record{ID: "aaaaaaaa", Hash: newSecret(t, pepper, "").Hash("x"), Owner: "a", Limit: &c.limit}.Err()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.limit, err, c.want)
		}
	}
}
