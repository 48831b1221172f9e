package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

func TestMissesAreReportedOnceAnHour(t *testing.T) {
	m, now := newMisses(), time.Now()
	entry := func(keys ...string) (entries []descriptors.Entry) {
		for i, key := range keys {
			entries = append(entries, descriptors.Entry{Key: key, Value: fmt.Sprint(i)})
		}
		return entries
	}
	for _, c := range []struct {
		domain  string
		entries []descriptors.Entry
		after   time.Duration
		want    bool
	}{
		{"a", entry("k"), 0, true},
		{"a", entry("k"), time.Minute, false},
		{"a", entry("k", "l"), time.Minute, true},
		{"a", entry("kl"), time.Minute, true},
		{"b", entry("k"), time.Minute, true},
		{"a", nil, time.Minute, true},
		{"a", entry("k"), time.Hour, true},
		{"a", entry("k"), time.Hour + time.Second, false},
	} {
		if got := m.isNew(c.domain, c.entries, now.Add(c.after)); got != c.want {
			t.Errorf("%s %v after %v: got %v, want %v", c.domain, c.entries, c.after, got, c.want)
		}
	}
}

func TestMissesAreBounded(t *testing.T) {
	m, now := newMisses(), time.Now()
	reported := func(from, to int, at time.Time) (n int) {
		for i := from; i < to; i++ {
			if m.isNew(fmt.Sprint(i), nil, at) {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		from, to int
		after    time.Duration
		want     int
	}{
		{0, 10, 0, 10},
		{10, 1000, time.Minute, maxShapes - 10},
		{1000, 2000, time.Minute, 0},
		{2000, 3000, time.Hour, 10}, // the places of the first ten
		{3000, 4000, time.Hour, 0},
	} {
		if got := reported(c.from, c.to, now.Add(c.after)); got != c.want {
			t.Errorf("%d to %d after %v: %d reports, want %d", c.from, c.to, c.after, got, c.want)
		}
	}
	if len(m.reported) > maxShapes {
		t.Errorf("%d shapes are remembered, want at most %d", len(m.reported), maxShapes)
	}
}

func TestMissesByDomain(t *testing.T) {
	rules := NewRules([]Domain{{Name: "shop"}}, RulesOptions{})
	l := New(Config{Rules: func() *Rules { return rules }})
	decide := func(domain string) {
		var plan Plan
		var rounds Rounds
		one := []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "k"}}}}
		l.Plan(&Query{Domain: domain, Descriptors: one}, &plan, &rounds)
	}
	want := map[string][2]uint64{"shop": {0, 2}, otherValue: {15, 0}}
	decide("shop")
	decide("shop")
	for i := range maxUnknownDomains + 10 {
		name := fmt.Sprintf("unknown-%d", i)
		decide(name)
		if i < maxUnknownDomains {
			want[name] = [2]uint64{1, 0}
		}
	}
	for _, name := range []string{"\xff", string(make([]byte, maxMetricValue+1)), "unknown-20", "x", "y"} {
		decide(name)
	}
	got := map[string][2]uint64{}
	l.EachMiss(func(domain string, c *MissCounters) {
		got[domain] = [2]uint64{c.UnknownDomain.Load(), c.Unmatched.Load()}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}
