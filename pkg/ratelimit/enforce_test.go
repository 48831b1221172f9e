package ratelimit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// TestPlace has the places of some values. No version may change them: `printf alice | sha256sum | cut -c1-16` gives
// 2bd806c97f0e00af, for example, and that number modulo 10,000 is the place in hundredths of a percent.
func TestPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ salt, value, place string }{
		{"", "alice", "2.07"}, {"", "bob", "86.5"}, {"", "10.0.0.1", "9.58"}, {"2", "alice", "58.66"}, {"2", "dave", "0.2"},
	} {
		e := ratelimit.Enforce{Salt: c.salt}
		if got := e.Place(c.value).String(); got != c.place {
			t.Errorf("%q with the salt %q is at %s percent, want %s", c.value, c.salt, got, c.place)
		}
	}
}

// TestWhoIsInStaysIn: percent of the values are in, more percent leaves none of them out, and the salt chooses.
func TestWhoIsInStaysIn(t *testing.T) {
	t.Parallel()
	const values = 20_000
	in := func(percent ratelimit.Percent, salt string) map[string]bool {
		e, set := ratelimit.Enforce{Percent: &percent, Salt: salt}, map[string]bool{}
		for i := range values {
			if value := fmt.Sprintf("user-%d", i); e.Includes(value) {
				set[value] = true
			}
		}
		return set
	}
	before := map[string]bool{}
	for _, percent := range []ratelimit.Percent{0, 10, 1000, 2000, 5000, 9990, 10_000} {
		set := in(percent, "")
		if share := len(set) * 10_000 / values; share < int(percent)-100 || share > int(percent)+100 {
			t.Errorf("%s percent are in of %d, want %s", ratelimit.Percent(share), values, percent)
		}
		for value := range before {
			if !set[value] {
				t.Errorf("%s was in with less, and is not with %s percent", value, percent)
			}
		}
		before = set
	}
	both, first := 0, in(1000, "")
	for value := range in(1000, "another") {
		if first[value] {
			both++
		}
	}
	if both > values/50 { // 1 % are expected
		t.Errorf("%d of %d values are in with either salt: the salt does not choose", both, values)
	}
}

// TestEnforceIsSeen: denials of requests that are left out are counted and shown as those of a limit in shadow, beside
// other limits, for one that is brought, and with detailed_metric.
func TestEnforceIsSeen(t *testing.T) {
	t.Parallel()
	const enforce = "enforce: {percent: 50, by: user}"
	for _, c := range []struct{ name, rule, limit, want string }{
		{"alone", "rate_limit: {name: new, unit: hour, requests_per_unit: 1, " + enforce + "}", "", `
			new: 1 allowed, 1 denied, 0 in shadow
			new, out: 1 allowed, 0 denied, 2 in shadow
			shadow: new 2 of 5
			key: user=alice over
			key: user=bob over in shadow`},
		{"beside", "limits: [{unit: day, requests_per_unit: 9}, {name: new, unit: hour, requests_per_unit: 1, " +
			enforce + "}]", "", `
			new: 1 allowed, 1 denied, 0 in shadow
			new, out, beside: 0 allowed, 0 denied, 2 in shadow
			user-9-a-1-day: 3 allowed, 0 denied, 0 in shadow
			shadow: new 2 of 5
			key: user=alice over
			key: user=bob over in shadow
			key: user=alice hot
			key: user=bob hot`},
		{"brought", "rate_limit: {unit: hour, requests_per_unit: 1, override: {max: 1, name: own}, " + enforce + "}",
			" own=1/hour", `
			own: 1 allowed, 1 denied, 0 in shadow
			own, out: 1 allowed, 0 denied, 2 in shadow
			user: 0 allowed, 0 denied, 0 in shadow
			user, out: 0 allowed, 0 denied, 0 in shadow
			shadow: user 0 of 5
			shadow: own 2 of 5
			key: user=alice over
			key: user=bob over in shadow`},
		{"by value", "detailed_metric: true\n    rate_limit: {name: new, unit: hour, requests_per_unit: 1, " + enforce + "}",
			"", `
			new: 0 allowed, 0 denied, 0 in shadow
			new: 0 allowed, 0 denied, 0 in shadow
			new: 1 allowed, 1 denied, 0 in shadow
			new, out: 0 allowed, 0 denied, 0 in shadow
			new, out: 0 allowed, 0 denied, 0 in shadow
			new, out: 1 allowed, 0 denied, 2 in shadow
			shadow: new 2 of 5
			key: user=alice over
			key: user=bob over in shadow`},
	} {
		w := newWatched(t, "domain: test\ndescriptors:\n  - key: user\n    "+c.rule, ratelimit.Config{})
		for _, user := range []string{"alice", "alice", "bob", "bob", "bob"} {
			decide(t, w.Limiter, query(t, "user="+user+c.limit))
		}
		var got []string
		w.rules.EachCounters(func(s ratelimit.Series, c *ratelimit.Counters) {
			name := s.Limit + map[bool]string{true: ", out"}[s.Out] + map[bool]string{true: ", beside"}[s.Beside]
			got = append(got, fmt.Sprintf("%s: %d allowed, %d denied, %d in shadow", name, c.Allowed.Descriptors(),
				c.Denied.Descriptors(), c.ShadowDenied.Descriptors()))
		})
		slices.Sort(got)
		for _, l := range w.ShadowLimits() {
			got = append(got, fmt.Sprintf("shadow: %s %d of %d", l.Limit, l.Denied, l.Requests))
		}
		hot := w.Hot()
		for _, k := range hot.Keys {
			got = append(got, "key: "+k.Entries+" "+k.State+map[bool]string{true: " in shadow"}[k.Shadow])
		}
		want := strings.Split(strings.ReplaceAll(strings.TrimSpace(c.want), "\t", ""), "\n")
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, diff)
		}
	}
}

// TestEnforceWithoutPercent: a rule with mistakes that no check has refused is in shadow.
func TestEnforceWithoutPercent(t *testing.T) {
	t.Parallel()
	l := &ratelimit.RuleLimit{Enforce: &ratelimit.Enforce{By: "user"}}
	entries := []descriptors.Entry{{Key: "user", Value: "alice"}}
	if got := l.Enforced(entries); l.Enforce.Includes("alice") || !strings.HasPrefix(got, "not enforced") {
		t.Errorf("alice is in without a percent: %s", got)
	}
}
