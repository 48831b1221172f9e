package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
)

// TestStrict compares a strict limiter with a model of envoyproxy/ratelimit, on random rules and requests.
func TestStrict(t *testing.T) {
	for range 40 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		m := ratelimitModel{
			shadow: r.IntN(5) == 0, quota: r.IntN(5) == 0, nodes: randomNodes(r), counts: map[string]int64{},
			over: map[string]bool{},
		}
		if r.IntN(2) == 0 {
			m.cache = 1
		}
		var now atomic.Int64 // the store also reads it in the background
		now.Store(begin.UnixMicro())
		limiter := newStrict(t, m, &now)
		for step := range 200 {
			second := now.Add(r.Int64N(20)*1_500_000) / 1_000_000
			q := randomQuery(r, len(m.nodes))
			got, want := describeStrict(decide(t, limiter, q)), m.decide(q, second)
			if got != want {
				t.Fatalf("seed %d, step %d: %+v\n got %s\nwant %s\nrules %+v", seed, step, q, got, want, m.nodes)
			}
		}
	}
}

func newStrict(t *testing.T, m ratelimitModel, now *atomic.Int64) *ratelimit.Limiter {
	t.Helper()
	store, err := memstore.New(memstore.Config{Clock: now.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	rules := ratelimit.NewRules([]ratelimit.Domain{{Name: "test", Descriptors: m.nodes}}, ratelimit.RulesOptions{
		DefaultAlgorithm: bucket.FixedWindow, Wildcards: descriptors.FileOrder,
	})
	return ratelimit.New(ratelimit.Config{
		Rules: func() *ratelimit.Rules { return rules }, Store: store, Fallback: store, Strict: true, Shadow: m.shadow,
		Quota: m.quota, LocalCache: m.cache, Clock: now.Load,
	})
}

// randomNodes returns rules for the keys 0, 1, and so on.
func randomNodes(r *rand.Rand) []ratelimit.Node {
	nodes := make([]ratelimit.Node, 1+r.IntN(6))
	for i := range nodes {
		limit := ratelimit.Limit{Unlimited: true}
		if r.IntN(6) > 0 {
			limit = ratelimit.Limit{Requests: new(r.Int64N(5)), Unit: descriptors.Minute + descriptors.Unit(r.IntN(2))}
		}
		nodes[i] = ratelimit.Node{
			Key: fmt.Sprint(i), RateLimit: &limit, Shadow: r.IntN(5) == 0, Quota: r.IntN(3) == 0,
		}
	}
	return nodes
}

// randomQuery returns a query for these keys, and for one without a rule.
func randomQuery(r *rand.Rand, keys int) ratelimit.Query {
	q := ratelimit.Query{Domain: "test", Hits: r.Uint64N(3)}
	for range 1 + r.IntN(5) {
		d := descriptors.Descriptor{
			Entries: []descriptors.Entry{{Key: fmt.Sprint(r.IntN(keys + 1)), Value: fmt.Sprint(r.IntN(2))}},
		}
		if r.IntN(4) == 0 {
			d.Hits = new(r.Uint64N(4))
		}
		if r.IntN(6) == 0 {
			d.Limit = &descriptors.RequestLimit{
				RequestsPerUnit: r.Uint32N(5), Unit: descriptors.Minute + descriptors.Unit(r.IntN(2)),
			}
		}
		q.Descriptors = append(q.Descriptors, d)
	}
	return q
}

// ratelimitModel is envoyproxy/ratelimit: it adds the hits of each descriptor to the count of a window, in order, and
// denies a descriptor if the sum is above its limit.
type ratelimitModel struct {
	nodes         []ratelimit.Node
	shadow, quota bool // SHADOW_MODE, QUOTA_MODE
	cache         int  // LOCAL_CACHE_SIZE_IN_BYTES
	counts        map[string]int64
	over          map[string]bool // what the cache has
}

func (m ratelimitModel) decide(q ratelimit.Query, second int64) string {
	denied, quotas, over := false, 0, 0
	var statuses, known []string
	if m.cache > 0 { // as it is before the request
		for key := range m.over {
			if m.over[key] {
				known = append(known, key)
			}
		}
	}
	for _, d := range q.Descriptors {
		hits := int64(max(1, q.Hits))
		if d.Hits != nil {
			hits = int64(*d.Hits)
		}
		node := m.find(d.Entries[0].Key)
		if d.Limit != nil { // it has no modes
			node = &ratelimit.Node{RateLimit: &ratelimit.Limit{
				Requests: new(int64(d.Limit.RequestsPerUnit)), Unit: d.Limit.Unit,
			}}
		}
		if node != nil && node.RateLimit.Unlimited {
			statuses = append(statuses, "unlimited")
			continue
		}
		isQuota := m.quota || node != nil && node.Quota
		if isQuota {
			quotas++
		}
		if node == nil {
			statuses = append(statuses, "none")
			continue
		}
		window := map[descriptors.Unit]int64{descriptors.Minute: 60, descriptors.Hour: 3600}[node.RateLimit.Unit]
		key := fmt.Sprint(d.Entries, window, second/window)
		cached := slices.Contains(known, key)
		if !cached {
			m.counts[key] += hits
		}
		left, reset := *node.RateLimit.Requests-m.counts[key], window-second%window
		m.over[key] = m.over[key] || left < 0
		switch {
		case left >= 0 && !cached || node.Shadow:
			if cached {
				left = 0
			}
			statuses = append(statuses, fmt.Sprintf("ok %d %ds", max(0, left), reset))
			continue
		case isQuota:
			over++
		default:
			denied = true
		}
		statuses = append(statuses, fmt.Sprintf("over 0 %ds", reset))
	}
	verdict := !denied && (quotas == 0 || over < quotas) || m.shadow
	return fmt.Sprint(verdict, ": ", strings.Join(statuses, " | "))
}

func (m ratelimitModel) find(key string) *ratelimit.Node {
	for i := range m.nodes {
		if m.nodes[i].Key == key {
			return &m.nodes[i]
		}
	}
	return nil
}

func describeStrict(res ratelimit.Result) string {
	var statuses []string
	for i := range res.Statuses {
		switch s := &res.Statuses[i]; {
		case s.Unlimited:
			statuses = append(statuses, "unlimited")
		case s.Binding == nil:
			statuses = append(statuses, "none")
		default:
			code := map[bool]string{true: "over", false: "ok"}[s.Binding.Denied()]
			reset := ratelimit.Seconds(s.Binding.Decision.ResetAfter)
			statuses = append(statuses, fmt.Sprintf("%s %d %ds", code, s.Binding.Remaining(), reset))
		}
	}
	return fmt.Sprint(res.Allowed, ": ", strings.Join(statuses, " | "))
}
