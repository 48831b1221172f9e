package rules_test

import (
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/rules"
)

// A Source provides sets. Live compiles each set and replaces the previous one at once.
func ExampleLive() {
	live := rules.NewLive(rules.Options{Limits: ratelimit.RulesOptions{DefaultAlgorithm: bucket.TokenBucket}})
	for i, perHour := range []int64{100, 200} {
		live.Activate(rules.Set{
			Domains: []ratelimit.Domain{{Name: "shop", Descriptors: []ratelimit.Node{{
				Key:       "api_key",
				RateLimit: &ratelimit.Limit{Unit: descriptors.Hour, Requests: &perHour, Name: "per-key"},
			}}}},
			Generation: fmt.Sprint(i + 1),
		}, nil)
		limit, _, _ := strings.Cut(rules.Dump(live.Active()), ",")
		fmt.Println(limit)
	}
	// Output:
	// shop.api_key: unit=HOUR requests_per_unit=100
	// shop.api_key: unit=HOUR requests_per_unit=200
}
