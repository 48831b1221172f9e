package rules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// TestCompare compares rule files. Each element of a set is a file.
func TestCompare(t *testing.T) {
	const limit = "rate_limit: {unit: hour, requests_per_unit: 1}"
	const shop = "domain: shop\ndescriptors:\n  - {key: a, " + limit + "}\n" +
		"  - key: b\n    descriptors: [{key: c, value: x, " + limit + "}]\n"
	const policy = "authz:\n  credentials: [{api_key: {header: x-api-key}}]\n" +
		"  access: [{path: {prefix: /a}, require: open}]\n"
	one := func(keys string) []string { return []string{"domain: d\ndescriptors: [{key: k, " + keys + "}]\n"} }
	all, changed := []string{"shop.a", "shop.authz", "shop.b.c_x"}, rules.Changes{Changed: []string{"d.k"}}
	for _, c := range []struct {
		name          string
		before, after []string
		want          rules.Changes
	}{
		{"equal", []string{shop + policy}, []string{shop + policy}, rules.Changes{}},
		{"comments move all lines", []string{shop + policy}, []string{"# a\n" + shop + "# b\n" + policy}, rules.Changes{}},
		{"another order of files", []string{"domain: api\n", shop}, []string{shop, "domain: api\n"}, rules.Changes{}},
		{"the first rules", nil, []string{shop + policy}, rules.Changes{Added: all}},
		{"a domain is removed", []string{shop + policy}, nil, rules.Changes{Removed: all}},
		{"a rule is added and one removed", []string{shop},
			[]string{"domain: shop\ndescriptors: [{key: d, " + limit + "}, {key: a, " + limit + "}]\n"},
			rules.Changes{Added: []string{"shop.d"}, Removed: []string{"shop.b.c_x"}}},
		{"a limit", one(limit), one(strings.Replace(limit, "1", "2", 1)), changed},
		{"a key of the rule", one(limit), one("shadow_mode: true, " + limit), changed},
		{"a value of the metadata", one("metadata: {a: 1}"), one("metadata: {a: 2}"), changed},
		{"a number that JSON lacks", one("metadata: {a: .nan}"), one("metadata: {a: .inf}"), changed},
		{"what a rule inherits", one("value: a*, descriptors: [{key: l, " + limit + "}]"),
			one("value: a*, share_threshold: true, descriptors: [{key: l, " + limit + "}]"),
			rules.Changes{Changed: []string{"d.k_a*.l"}}},
		{"the limit of a rule above", one("descriptors: [{key: l, " + limit + "}]"),
			one(limit + ", descriptors: [{key: l, " + limit + "}]"), rules.Changes{Added: []string{"d.k"}}},
		{"an access rule", []string{shop + policy}, []string{shop + strings.Replace(policy, "open", "denied", 1)},
			rules.Changes{Changed: []string{"shop.authz"}}},
		{"a line break in a value", nil, one("value: \"a\\nb\""), rules.Changes{Added: []string{`d.k_a\nb`}}},
		{"an API key in the place of a value", nil, one("value: ea_12345678_abcdefghijklmnopqrstuvwxyz0123456789ab"),
			rules.Changes{Added: []string{"d.k_ea_12345678_" + strings.Repeat("*", 38)}}},
	} {
		set := func(contents []string) rules.Set {
			t.Helper()
			var files []file.File
			for i, content := range contents {
				files = append(files, file.File{Name: string(rune('a'+i)) + ".yaml", Content: []byte(content)})
			}
			set, problems := file.Parse(files, file.Config{AllowEmpty: true})
			if err := problems.Err(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			return set
		}
		got := rules.Compare(set(c.before), set(c.after))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
