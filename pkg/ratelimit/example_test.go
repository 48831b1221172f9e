package ratelimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
)

// Two requests per minute for each API key, counted in memory.
func Example() {
	perMinute := int64(2)
	shop := ratelimit.Domain{Name: "shop", Descriptors: []ratelimit.Node{{
		Key:       "api_key",
		RateLimit: &ratelimit.Limit{Unit: descriptors.Minute, Requests: &perMinute},
	}}}
	options := ratelimit.RulesOptions{DefaultAlgorithm: bucket.SlidingWindow}
	rules := ratelimit.NewRules([]ratelimit.Domain{shop}, options)

	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter := ratelimit.New(ratelimit.Config{Store: store, Rules: func() *ratelimit.Rules { return rules }})

	// One batch has three requests of the same client. They are decided in their order.
	query := ratelimit.Query{
		Domain:      "shop",
		Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "api_key", Value: "alice"}}}},
	}
	results := make([]ratelimit.Result, 3)
	limiter.DecideAll(context.Background(), []ratelimit.Query{query, query, query}, results)
	for _, r := range results {
		wait := time.Duration(r.RetryAfter) * time.Microsecond
		fmt.Printf("allowed=%t retry after %v\n", r.Allowed, wait.Round(time.Second))
	}
	// Output:
	// allowed=true retry after 0s
	// allowed=true retry after 0s
	// allowed=false retry after 1m0s
}
