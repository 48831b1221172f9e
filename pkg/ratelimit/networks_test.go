package ratelimit_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// TestNetworksOfRules: the exact value wins, then the longest prefix, then the wildcard, then the key alone. Each
// address has a bucket, unless the rule shares one. Two Domains of one name are merged.
func TestNetworksOfRules(t *testing.T) {
	limit := &ratelimit.Limit{Unit: descriptors.Minute, Requests: new(int64(5))}
	node := func(value, network string, share bool) ratelimit.Node {
		return ratelimit.Node{
			Key: "address", Value: value, Network: network, ShareThreshold: share, RateLimit: limit,
			Descriptors: []ratelimit.Node{{Key: "path", RateLimit: limit}},
		}
	}
	domains := []ratelimit.Domain{
		{Name: "shop", Descriptors: []ratelimit.Node{node("", "", false), node("10.*", "", false), node("", "wide", false)}},
		{Name: "shop", Descriptors: []ratelimit.Node{node("", "small", true), node("10.1.0.9", "", false)}},
	}
	o := ratelimit.RulesOptions{Networks: networks.Lists{
		"wide": {netip.MustParsePrefix("10.0.0.0/9")}, "small": {netip.MustParsePrefix("10.1.0.0/16")},
	}}
	rules := ratelimit.NewRules(domains, o)
	for _, c := range []struct{ value, rule, matched string }{
		{"10.1.0.9", "address_10.1.0.9", "`address_10.1.0.9`"},
		{"10.1.0.8", "address_small", "`address_small`, 10.1.0.0/16"},
		{"::ffff:10.1.0.7", "address_small", "`address_small`, 10.1.0.0/16"},
		{"10.1.2.0/24", "address_small", "`address_small`, 10.1.0.0/16"},
		{"10.2.0.1", "address_wide", "`address_wide`, 10.0.0.0/9"},
		{"10.200.0.1", "address_10.*", "`address_10.*`"},
		{"192.0.2.1", "address", "`address`"},
		{"unknown", "address", "`address`"},
	} {
		entries := []descriptors.Entry{{Key: "address", Value: c.value}}
		found := rules.Locate("shop", entries, nil)
		if len(found) == 0 || found[0].Rule.Name != c.rule {
			t.Fatalf("%s: got %+v, want the rule %s", c.value, found, c.rule)
		}
		if got := strings.Join(rules.Matched("shop", entries), " "); got != c.matched {
			t.Errorf("%s: matched %s, want %s", c.value, got, c.matched)
		}
		if shares := c.rule == "address_small"; strings.Contains(found[0].Take.Key, c.value) == shares {
			t.Errorf("%s: the bucket is %s, shared %v", c.value, found[0].Take.Key, shares)
		}
		below := rules.Locate("shop", append(entries, descriptors.Entry{Key: "path", Value: "/"}), nil)
		if len(below) == 0 || below[0].Rule.Name != c.rule+".path" {
			t.Errorf("%s: got %+v, want the rule below %s", c.value, below, c.rule)
		}
	}
	for i := range domains {
		domains[i].Descriptors = domains[i].Descriptors[2:] // the networks of only one of them, and an exact value
		domains[i].Descriptors = domains[i].Descriptors[:min(1, len(domains[i].Descriptors))]
	}
	rules = ratelimit.NewRules(domains, o)
	for value, want := range map[string]string{
		"10.2.0.1":   "",
		"10.200.0.1": "no rule for `address` = `10.200.0.1`; the rules have `wide`",
		"":           "no rule for `address` = ``; the rules have `wide`",
	} {
		if got := rules.Miss("shop", []descriptors.Entry{{Key: "address", Value: value}}, ratelimit.ShowValues); got != want {
			t.Errorf("Miss of %q: got %q, want %q", value, got, want)
		}
	}
	possible := []ratelimit.PossibleEntry{{Entry: descriptors.Entry{Key: "address"}, AnyValue: true}}
	if got := rules.MissOfAll("shop", possible); got != "" {
		t.Error(got)
	}
	possible = append(possible, ratelimit.PossibleEntry{Entry: descriptors.Entry{Key: "other"}, AnyValue: true})
	const want = "no rule for `other` below `address_wide`"
	if got := rules.MissOfAll("shop", possible); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
