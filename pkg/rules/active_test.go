package rules_test

import (
	"testing"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// TestActivate: a set is prepared before it is active, all of it becomes active at once, and counters continue.
func TestActivate(t *testing.T) {
	set := func(generation string, keys ...string) rules.Set {
		d := ratelimit.Domain{Name: "shop"}
		for _, key := range keys {
			limit := &ratelimit.Limit{Unit: descriptors.Minute, Requests: new(int64(1))}
			d.Descriptors = append(d.Descriptors, ratelimit.Node{Key: key, RateLimit: limit})
		}
		policy := &authz.Policy{Credentials: []authz.Credential{{JWT: &authz.JWT{
			Issuer: new(generation), Audiences: []string{"a"}, Algorithms: []string{"RS256"}, JWKSFile: new("keys.json"),
		}}}}
		return rules.Set{
			Domains: []ratelimit.Domain{d}, Policies: map[string]*authz.Policy{"shop": policy}, Generation: generation,
		}
	}
	live := rules.NewLive(rules.Options{})
	if n := len(live.Limits().All()) + len(live.Policies().Issuers()); n > 0 {
		t.Errorf("%d limits and issuers before the first set", n)
	}
	live.Activate(set("first", "a", "b"), nil)
	live.Limits().All()[0].Limits[0].Counters.Denied.Add(5)
	before := live.Active()
	live.Activate(set("second", "a", "c"), func(next *rules.Active) {
		if live.Active() != before || next.Policies.Issuers()[0].Name != "second" {
			t.Error("prepare was called after the set became active, or with another set")
		}
	})
	now := live.Active()
	if now.Set.Generation != "second" || now.Limits != live.Limits() || now.Policies != live.Policies() {
		t.Errorf("active: %+v", now)
	}
	for _, rule := range now.Limits.All() {
		want := map[string]uint64{"a": 5, "c": 0}[rule.Name]
		if got := rule.Limits[0].Counters.Denied.Hits(); got != want {
			t.Errorf("%s has denied %d, want %d", rule.Name, got, want)
		}
	}
}
