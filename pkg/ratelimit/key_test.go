package ratelimit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

func keyRules() *Rules {
	token := Limit{Algorithm: bucket.TokenBucket, Requests: new(int64(1)), Unit: descriptors.Second}
	hour := Limit{Algorithm: bucket.TokenBucket, Requests: new(int64(1)), Unit: descriptors.Hour}
	tagged := Limit{Algorithm: bucket.FixedWindow, Requests: new(int64(1)), Unit: descriptors.Second, HashTag: "t"}
	return NewRules([]Domain{
		{Name: "d", Descriptors: []Node{
			{Key: "k", Limits: []Limit{token}, Descriptors: []Node{{Key: "k2", Limits: []Limit{token}}}},
			{Key: "k", Value: "x", Limits: []Limit{token, hour}, Descriptors: []Node{{Key: "k2", Limits: []Limit{token}}}},
			{Key: "k", Value: "w*", Limits: []Limit{token}},
			{Key: "k", Value: "s*", Limits: []Limit{token}, ShareThreshold: true},
			{Key: "j*", Limits: []Limit{token}},
			{Key: strings.Repeat("long", 40), Limits: []Limit{token}},
			{Key: "o", Limits: []Limit{token}},
			{Key: "t", Limits: []Limit{tagged}, Descriptors: []Node{{Key: "k", Limits: []Limit{tagged}}}},
		}},
		{Name: "d1:k", Descriptors: []Node{{Key: "k", Limits: []Limit{token}}}},
	}, RulesOptions{KeyPrefix: "p:"})
}

// FuzzKey checks that two descriptors share a bucket exactly if they end at the same rule with the same values.
func FuzzKey(f *testing.F) {
	f.Add("d", "k", "x", "k2", "y", "d", "k", "x_k2_y", "", "")
	f.Add("d", "k", "1:a", "", "", "d", "k", "1", "", ":a")
	f.Add("d", "j1", "a", "", "", "d", "j", "1:a", "", "")
	f.Add("d", "k", "s1", "", "", "d", "k", "s2", "", "")
	f.Add("d", "t", "{a}", "k", "b", "d", "t", "a", "k", "b")
	f.Add("d", "k", strings.Repeat("v", 70), "", "", "d", "k", "#"+strings.Repeat("v", 32), "", "")
	f.Add("d", "k", "v", "", "", "d1:k", "k", "v", "", "")
	rules := keyRules()
	f.Fuzz(func(t *testing.T, d1, k1, v1, kk1, vv1, d2, k2, v2, kk2, vv2 string) {
		one := bucketsOf(rules, d1, pair(k1, v1, kk1, vv1))
		two := bucketsOf(rules, d2, pair(k2, v2, kk2, vv2))
		for i, a := range one {
			if !strings.HasPrefix(a.key, "p:rl:") {
				t.Fatalf("key %q", a.key)
			}
			for j, b := range two {
				same := a.rule == b.rule && i == j && slices.Equal(a.values, b.values)
				wrong := (a.key == b.key) != same || (a.refused == b.refused) != same
				if wrong || a.key == b.refused || a.refused == b.key {
					t.Errorf("%q %q and %q %q: same bucket %t, keys %q %q",
						d1, pair(k1, v1, kk1, vv1), d2, pair(k2, v2, kk2, vv2), same, a.key, b.key)
				}
			}
			for _, b := range one[i+1:] {
				if a.key == b.key {
					t.Errorf("two limits of one rule share %q", a.key)
				}
			}
			var brought RuleLimit
			brought.identity = string(requestLimitIdentity(d2, a.limit))
			o := string((*Rule)(nil).appendKey(nil, "p:", &brought, pair(k2, v2, kk2, vv2), false))
			if o == a.key || o == a.refused {
				t.Errorf("a limit of a request shares %q", o)
			}
			ofRefused := string((*Rule)(nil).appendKey(nil, "p:", &brought, pair(k2, v2, kk2, vv2), true))
			if ofRefused == a.key || ofRefused == a.refused || ofRefused == o {
				t.Errorf("a limit of a refused request shares %q", ofRefused)
			}
		}
	})
}

type keyed struct {
	rule   *Rule
	limit  bucket.Limit
	values []string
	key    string
	// refused is the key for a refused request.
	refused string
}

func pair(k1, v1, k2, v2 string) []descriptors.Entry {
	entries := []descriptors.Entry{{Key: k1, Value: v1}}
	if k2 != "" || v2 != "" {
		entries = append(entries, descriptors.Entry{Key: k2, Value: v2})
	}
	return entries
}

func bucketsOf(r *Rules, domain string, entries []descriptors.Entry) (list []keyed) {
	if r.domains[domain] == nil {
		return nil
	}
	node := r.domains[domain].Find(entries)
	if node == nil || node.Value.rule == nil {
		return nil
	}
	rule := node.Value.rule
	var values []string
	for _, v := range rule.buckets {
		if v.key {
			values = append(values, "key:"+entries[v.entry].Key)
		}
		if v.value {
			values = append(values, "value:"+entries[v.entry].Value)
		}
	}
	for i := range rule.Limits {
		l := &rule.Limits[i]
		list = append(list, keyed{
			rule, l.Limit, values,
			string(rule.appendKey(nil, r.options.KeyPrefix, l, entries, false)),
			string(rule.appendKey(nil, r.options.KeyPrefix, l, entries, true)),
		})
	}
	return list
}

// TestKeys checks the text of keys: a change of them would lose all counts at the next deployment.
func TestKeys(t *testing.T) {
	rules := keyRules()
	for _, c := range []struct {
		domain string
		entry  []descriptors.Entry
		want   []string
	}{
		{"d", pair("k", "v", "", ""), []string{"p:rl:1:d1:k*/t1000000;1:v"}},
		{"d", pair("k", "x", "", ""), []string{"p:rl:1:d1:k=1:x/t1000000;", "p:rl:1:d1:k=1:x/t3600000000;"}},
		{"d", pair("k", "x", "k2", "y"), []string{"p:rl:1:d1:k=1:x2:k2*/t1000000;1:y"}},
		{"d", pair("k", "wide", "", ""), []string{"p:rl:1:d1:k=2:w*/t1000000;4:wide"}},
		{"d", pair("j1", "v", "", ""), []string{"p:rl:1:d2:j**/t1000000;2:j11:v"}},
		{"d", pair("k", "some", "", ""), []string{"p:rl:1:d1:k=2:s*/t1000000;"}},
		{"d", pair("t", "tag", "", ""), []string{"p:rl:{tag}1:d1:t*/f1000000;3:tag"}},
		{"d", pair("t", "", "k", "v"), []string{"p:rl:{#e3b0c44298fc1c149afbf4c8996fb924}1:d1:t*1:k*/f1000000;0:1:v"}},
		{"d", pair("k", "{a}", "", ""), []string{"p:rl:1:d1:k*/t1000000;#460c3a93211614ac783c0f1d1bbbcb45"}},
	} {
		var got []string
		for _, k := range bucketsOf(rules, c.domain, c.entry) {
			got = append(got, k.key)
			if i := len("p:rl:") + tagLength(k.key); k.refused != k.key[:i]+"r"+k.key[i:] {
				t.Errorf("%q of a refused request: %q, of others %q", c.entry, k.refused, k.key)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.entry, got, c.want)
		}
	}
}

// tagLength returns the length of the hash tag after the prefix of a key, 0 for none.
func tagLength(key string) int {
	key = strings.TrimPrefix(key, "p:rl:")
	if !strings.HasPrefix(key, "{") {
		return 0
	}
	return strings.IndexByte(key, '}') + 1
}

// TestRuleOfTakes checks Take.Rule, by which a full memstore evicts buckets. All takes of one limit of a rule have the
// same rule, whatever the values of the client and the limit of its credential. All limits that requests of a domain
// bring also share one. Different limits have different rules, and refused requests have rules of their own.
func TestRuleOfTakes(t *testing.T) {
	own := &LimitSpec{Requests: 1, Unit: descriptors.Hour}
	override := &descriptors.RequestLimit{RequestsPerUnit: 1, Unit: descriptors.Minute}
	longer := &descriptors.RequestLimit{RequestsPerUnit: 7, Unit: descriptors.Hour}
	rules := keyRules()
	limit := &rules.domains["d"].Find(pair("o", "v", "", "")).Value.rule.Limits[0]
	limit.Override, limit.brought = &Override{Max: 1000}, new(broughtLimits)
	rules.domains["d"].Find(pair("o", "v", "", "")).Value.rule.overrides = true
	seen := map[uint64]string{}
	for _, c := range []struct {
		name   string
		domain string
		values []descriptors.Descriptor
		owns   []*LimitSpec
		limits int
	}{
		{"k", "d", []descriptors.Descriptor{{Entries: pair("k", "a", "", "")}, {Entries: pair("k", "b", "", "")}}, nil, 1},
		{"k of another domain", "d1:k", []descriptors.Descriptor{{Entries: pair("k", "a", "", "")}}, nil, 1},
		{"two limits", "d", []descriptors.Descriptor{{Entries: pair("k", "x", "", "")}}, nil, 2},
		{"below it", "d",
			[]descriptors.Descriptor{{Entries: pair("k", "x", "k2", "a")}, {Entries: pair("k", "x", "k2", "b")}}, nil, 1},
		{"wildcard", "d",
			[]descriptors.Descriptor{{Entries: pair("k", "wa", "", "")}, {Entries: pair("k", "wb", "", "")}}, nil, 1},
		{"wildcard key", "d",
			[]descriptors.Descriptor{{Entries: pair("j1", "a", "", "")}, {Entries: pair("j2", "b", "", "")}}, nil, 1},
		{"hash tag", "d",
			[]descriptors.Descriptor{{Entries: pair("t", "a", "", "")}, {Entries: pair("t", "b", "", "")}}, nil, 1},
		{"owners", "d", []descriptors.Descriptor{
			{Entries: pair("o", "a", "", "")}, {Entries: pair("o", "b", "", "")},
			{Entries: pair("o", "a", "", ""), Limit: override},
		}, []*LimitSpec{own}, 1},
		{"overrides", "d", []descriptors.Descriptor{
			{Entries: pair("k", "a", "", ""), Limit: override}, {Entries: pair("z", "b", "", ""), Limit: override},
			{Entries: pair("k", "a", "", ""), Limit: longer},
		}, nil, 1},
		{"overrides of another domain", "d1:k",
			[]descriptors.Descriptor{{Entries: pair("k", "a", "", ""), Limit: override}}, nil, 1},
	} {
		found := map[uint64]bool{}
		for _, d := range c.values {
			for _, own := range append(c.owns, nil) {
				for _, refused := range []bool{false, true} {
					var p Plan
					var rounds Rounds
					new(Limiter).Plan(&Query{
						Domain: c.domain, Descriptors: []descriptors.Descriptor{d}, CredentialLimit: own,
						Refused: refused, Rules: rules,
					}, &p, &rounds)
					if p.err != nil {
						t.Fatal(p.err)
					}
					name := fmt.Sprintf("%s, refused %t", c.name, refused)
					for _, take := range rounds.now.requests[0].Takes {
						found[take.Rule] = true
						if other, ok := seen[take.Rule]; ok && other != name {
							t.Errorf("%s: the same rule as %s", name, other)
						}
						seen[take.Rule] = name
					}
				}
			}
		}
		if len(found) != 2*c.limits {
			t.Errorf("%s: takes of %d rules, want %d", c.name, len(found), 2*c.limits)
		}
	}
}
