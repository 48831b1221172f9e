package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
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
		policy := &authz.Policy{Credentials: []authz.Credential{{JWT: &jwt.Credential{
			Issuer: new(generation), Audiences: []string{"a"}, Algorithms: []string{"RS256"}, JWKSFile: new("keys.json"),
		}}}}
		return rules.Set{
			Domains: []ratelimit.Domain{d}, Policies: map[string]*authz.Policy{"shop": policy}, Generation: generation,
		}
	}
	live := rules.NewLive(rules.Options{})
	if n := len(live.Limits().All()) + len(authz.CredentialsOf[*jwt.Credential](live.Policies())); n > 0 {
		t.Errorf("%d limits and issuers before the first set", n)
	}
	live.Activate(set("first", "a", "b"), nil)
	live.Limits().All()[0].Limits[0].Counters.Denied.Add(5)
	before := live.Active()
	live.Activate(set("second", "a", "c"), func(next *rules.Active) {
		if live.Active() != before || *authz.CredentialsOf[*jwt.Credential](next.Policies)[0].Issuer != "second" {
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

// TestCountersOfRemovedRules: the counters of a removed rule are still collected until the rules change again, because
// decisions since the last scrape are in them. They go on if the rule comes back.
func TestCountersOfRemovedRules(t *testing.T) {
	domain := func(keys ...string) rules.Set {
		d := ratelimit.Domain{Name: "shop"}
		for _, key := range keys {
			limit := &ratelimit.Limit{Unit: descriptors.Minute, Requests: new(int64(0))}
			d.Descriptors = append(d.Descriptors, ratelimit.Node{Key: key, RateLimit: limit,
				DetailedMetric: key == "by_value"})
		}
		return rules.Set{Domains: []ratelimit.Domain{d}, Generation: "g"}
	}
	live := rules.NewLive(rules.Options{})
	collected := func() map[string]uint64 {
		denied := map[string]uint64{}
		live.Limits().EachCounters(func(s ratelimit.Series, c *ratelimit.Counters) {
			if n := c.Denied.Hits(); n > 0 {
				denied[s.Rule] = n
			}
		})
		return denied
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	limiter := ratelimit.New(ratelimit.Config{Rules: live.Limits, Store: store})
	deny := func(key string) {
		q := ratelimit.Query{Domain: "shop", Descriptors: []descriptors.Descriptor{{
			Entries: []descriptors.Entry{{Key: key, Value: "v"}},
		}}}
		limiter.DecideAll(t.Context(), []ratelimit.Query{q}, make([]ratelimit.Result, 1))
	}
	for i, step := range []struct {
		keys []string
		deny string
		want map[string]uint64
	}{
		{[]string{"a", "b", "by_value"}, "b", map[string]uint64{"b": 1}},
		{[]string{"a", "b", "by_value"}, "by_value", map[string]uint64{"b": 1, "by_value_v": 1}},
		{[]string{"a"}, "a", map[string]uint64{"a": 1, "b": 1, "by_value_v": 1}},
		{[]string{"a", "b", "by_value"}, "b", map[string]uint64{"a": 1, "b": 2, "by_value_v": 1}},
		{[]string{"a", "by_value"}, "by_value", map[string]uint64{"a": 1, "b": 2, "by_value_v": 2}},
		{[]string{"a"}, "a", map[string]uint64{"a": 2, "by_value_v": 2}},
	} {
		live.Activate(domain(step.keys...), nil)
		deny(step.deny)
		if diff := cmp.Diff(step.want, collected()); diff != "" {
			t.Errorf("step %d: want (-) and got (+):\n%s", i+1, diff)
		}
	}
}
