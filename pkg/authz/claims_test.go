package authz_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// bearer is a kind of credential of which each is valid, and has the same claims.
type bearer struct {
	ticket
	claims map[string]any
}

func (b *bearer) Identify(context.Context, credential.Kind, string) (credential.Identity, error) {
	absent := make([]string, 1, 8) // room for more, as the cache of tokens may have
	absent[0] = "plan"
	return credential.Identity{Method: "ticket", Owner: "ann", Claims: b.claims, Absent: absent}, nil
}

// TestClaimsInDescriptors: `credential: {field: claim.<path>}` reads a claim at any depth. The decision has the paths
// that the token lacks, each once.
func TestClaimsInDescriptors(t *testing.T) {
	claims := map[string]any{
		"tenant": "acme", "https://example.com/team": "blue",
		"org":    map[string]any{"id": int64(7), "a.b": true, "list": []any{"x"}},
		"groups": []any{map[string]any{"name": "dev"}},
	}
	for _, c := range []struct {
		field     *credential.Path
		byDefault string
		claims    map[string]any
		want      *descriptors.Entry
		absent    []string
	}{
		{credential.NewPath("claim.tenant"), "", claims, &descriptors.Entry{Key: "claim.tenant", Value: "acme"}, nil},
		{credential.NewPath("claim.https://example.com/team"), "", claims,
			&descriptors.Entry{Key: "claim.https://example.com/team", Value: "blue"}, nil},
		{credential.NewPath("claim.org.id"), "", claims, &descriptors.Entry{Key: "claim.org.id", Value: "7"}, nil},
		{credential.NewPath("claim.groups.0.name"), "", claims,
			&descriptors.Entry{Key: "claim.groups.0.name", Value: "dev"}, nil},
		{&credential.Path{Names: []string{"claim", "org", "a.b"}}, "", claims,
			&descriptors.Entry{Key: "claim.org.a.b", Value: "true"}, nil},
		{credential.NewPath("claim.org.name"), "none", claims,
			&descriptors.Entry{Key: "claim.org.name", Value: "none"}, []string{"org.name"}},
		{credential.NewPath("claim.org.name"), "", claims, nil, []string{"org.name"}},
		{credential.NewPath("claim.org.list"), "", claims, nil, []string{"org.list"}}, // not one value
		{credential.NewPath("claim.plan"), "", claims, nil, nil},                      // told already
		{credential.NewPath("claim.tenant"), "", nil, nil, nil},                       // no token
	} {
		kind := &bearer{ticket{[]string{"ann"}}, c.claims}
		action := authz.Action{Credential: &authz.CredentialAction{Field: c.field, Default: c.byDefault}}
		policies := authz.NewPolicies(map[string]*authz.Policy{"shop": {
			Credentials: []authz.Credential{{Own: kind}},
			Limits:      []authz.RateLimit{{Actions: []authz.Action{action}}, {Actions: []authz.Action{action}}},
			Refused:     []authz.RateLimit{{Actions: []authz.Action{{RemoteAddress: &authz.RemoteAddress{}}}}},
		}}, ratelimit.NewRules(nil, ratelimit.RulesOptions{}), reply.Headers{})
		a := authz.New(authz.Config{Policies: func() *authz.Policies { return policies }})
		var p authz.Pending
		r := &authz.Request{
			HTTP: true, Method: "GET", Host: "shop.example", Path: "/", Headers: authz.Headers{{Name: "x-ticket", Value: "ann"}},
		}
		for range 2 { // the second request uses the memory of the first
			p.Reset()
			if !a.BeginNow(r, &p) {
				t.Fatal("the request is not decided at once")
			}
			var got *descriptors.Entry
			if len(p.Query.Descriptors) > 0 {
				got = &p.Query.Descriptors[0].Entries[0]
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: entry (-want +got)\n%s", c.field, diff)
			}
			if diff := cmp.Diff(append([]string{"plan"}, c.absent...), p.Decision.Absent); diff != "" {
				t.Errorf("%s: absent claims (-want +got)\n%s", c.field, diff)
			}
		}
	}
}
