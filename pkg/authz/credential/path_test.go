package credential_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

func TestPath(t *testing.T) {
	var claims map[string]any
	if err := json.Unmarshal([]byte(`{
		"sub": "ann", "https://example.com/roles": ["admin"], "a": {"b": {"c": "nested"}, "b.c": "dotted", "0": "zero"},
		"whole.null": null, "whole": {"null": "nested"}, "groups": [{"name": "dev"}, "ops"], "0": "top", "empty": {}
	}`), &claims); err != nil {
		t.Fatal(err)
	}
	list := func(names ...string) *credential.Path {
		var p credential.Path
		p.UnmarshalList(names)
		return &p
	}
	for _, c := range []struct {
		path *credential.Path
		want any
	}{
		{credential.NewPath("sub"), "ann"},
		{credential.NewPath("absent"), nil},
		{credential.NewPath("https://example.com/roles"), []any{"admin"}}, // the whole name
		{credential.NewPath("https://example.com/roles.0"), nil},
		{list("https://example.com/roles", "0"), "admin"},
		{credential.NewPath("whole.null"), nil}, // it stands at the top level, so the path is not followed
		{list("whole", "null"), "nested"},
		{credential.NewPath("a.b.c"), "nested"},
		{list("a", "b", "c"), "nested"},
		{list("a", "b.c"), "dotted"}, // an element is not split
		{list("a.b", "c"), nil},
		{list("a.b.c"), nil},
		{list("https://example.com/roles"), []any{"admin"}},
		{credential.NewPath("a.b.c.d"), nil},
		{credential.NewPath("sub.0"), nil},
		{credential.NewPath("groups.0.name"), "dev"}, // a number is an index only into a list
		{credential.NewPath("groups.1"), "ops"},
		{credential.NewPath("groups.2"), nil},
		{credential.NewPath("groups.-1"), nil},
		{credential.NewPath("groups.+1"), nil},
		{credential.NewPath("groups.name"), nil},
		{credential.NewPath("groups.99999999999999999999"), nil},
		{credential.NewPath("0"), "top"},
		{credential.NewPath("a.0"), "zero"},
		{credential.NewPath("empty.0"), nil},
		{credential.NewPath("claim.a.b.c").After(), "nested"},
		{credential.NewPath("claim.https://example.com/roles").After(), []any{"admin"}},
		{list("claim", "a", "b.c").After(), "dotted"},
	} {
		if diff := cmp.Diff(c.want, c.path.In(claims)); diff != "" {
			t.Errorf("%q %q (-want +got)\n%s", c.path.Whole, c.path.Names, diff)
		}
	}
	if got := credential.NewPath("a").In(nil); got != nil {
		t.Errorf("without claims: got %v, want nil", got)
	}
}
