package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// partial is a store that fails the requests for costs above a bound.
type partial struct {
	ratelimit.Store

	most    uint64
	batches []int // the sizes of the batches
}

func (p *partial) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	p.batches = append(p.batches, len(requests))
	for i, r := range requests {
		if r.Takes[0].Cost > p.most {
			outcomes[i] = bucket.Outcome{Err: errors.New("the store is unavailable")}
			continue
		}
		ratelimit.Take(ctx, p.Store, requests[i:i+1], outcomes[i:i+1])
	}
}

// TestDecideAll checks that queries of one batch are decided each by itself, with one call of each of the two stores.
func TestDecideAll(t *testing.T) {
	rules, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(`
domain: d
descriptors:
  - {key: local, rate_limit: {unit: day, requests_per_unit: 100, on_store_error: local}}
  - {key: allow, rate_limit: {unit: day, requests_per_unit: 50, on_store_error: allow}}
  - {key: deny, rate_limit: {unit: day, requests_per_unit: 25, on_store_error: deny}}
`)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	store, local := &partial{most: 10}, &partial{most: 150}
	for _, s := range []*partial{store, local} {
		memory, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = memory.Close() })
		s.Store = memory
	}
	active := ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{})
	limiter := ratelimit.New(ratelimit.Config{
		Rules: func() *ratelimit.Rules { return active }, Store: store, Fallback: local,
	})
	ask := func(hits uint64, keys ...string) ratelimit.Query {
		q := ratelimit.Query{Domain: "d", Hits: hits}
		for _, key := range keys {
			entries := []descriptors.Entry{{Key: key, Value: "v"}}
			q.Descriptors = append(q.Descriptors, descriptors.Descriptor{Entries: entries})
		}
		return q
	}
	queries := []ratelimit.Query{
		ask(1, "local"), ask(1, "unknown"), {},
		ask(11, "local"), ask(11, "local", "allow"), ask(11, "allow"), ask(11, "local", "deny"),
		ask(1, "local"), ask(120, "local"), ask(200, "local"), {Domain: "d"},
		ask(2, "allow", "deny", "local"), ask(1, "deny", "deny"),
	}
	want := []string{
		"0 ok : ok 99", "0 ok : none", "error: " + ratelimit.ErrNoDomain.Error(),
		"1 ok : ok 89", "1 ok : ok 78 | ok 50", "2 ok : ok 50", "3 denied retry 1s : ok 100 | over 0",
		"0 ok : ok 98", "1 denied retry never : over 78", "2 ok : ok 100", "error: " + ratelimit.ErrNoDescriptors.Error(),
		"0 ok : ok 48 | ok 23 | ok 96", "0 ok : ok 21 | ok 21",
	}
	results := make([]ratelimit.Result, len(queries))
	limiter.DecideAll(t.Context(), queries, results)
	var got []string
	for _, res := range results {
		text := describe(res)
		if res.Err == nil {
			text = fmt.Sprintf("%d %s", res.Decider, text)
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers and their sources (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([][]int{{10}, {4}}, [][]int{store.batches, local.batches}); diff != "" {
		t.Errorf("sizes of the batches of the store and of the fallback store (-want +got)\n%s", diff)
	}
}
