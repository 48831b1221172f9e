package service

import (
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// decisions returns how the limiter decides by the active rules. Until there are some, each call of the rate limit
// service is an error, so that failure_mode_deny of Envoy decides. The stores are not set.
func (s *Settings) decisions(live *rules.Live) ratelimit.Config {
	active := func() *ratelimit.Rules {
		if a := live.Active(); a.Set.Generation != "" {
			return a.Limits
		}
		return nil
	}
	return ratelimit.Config{
		Rules: active, MaxHeld: s.maxHeldPerBucket(), NearLimitRatio: float32(s.NearLimitRatio),
		Shadow: s.ShadowMode, Quota: s.QuotaMode, Strict: s.strict(),
		StopWhenOver: s.StopWhenOver,
	}
}

// answers returns how the rate limit service answers.
func (s *Settings) answers(limiter *ratelimit.Limiter, queue *hold.Queue) rls.Config {
	return rls.Config{
		Limiter: limiter, Queue: queue, Headers: s.headers(), ProblemBody: s.ResponseBody == "problem",
		DynamicMetadata: s.DynamicMetadata, Strict: s.strict(),
	}
}
