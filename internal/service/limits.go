package service

import (
	"cmp"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/rules"
)

// decisions returns how the limiter decides by the active rules. Until there are some, each call of the rate limit
// service is an error, so that failure_mode_deny of Envoy decides. The stores are not set.
func decisions(s *settings.Settings, live *rules.Live) ratelimit.Config {
	active := func() *ratelimit.Rules {
		if a := live.Active(); a.Set.Generation != "" {
			return a.Limits
		}
		return nil
	}
	places := s.Authorization.MaxHeld
	perBucket := cmp.Or(s.Limits.MaxHeldPerBucket, max(1, places/10)) // 0 would mean no bound
	return ratelimit.Config{
		Rules: active, MaxHeld: int64(perBucket), MaxHeldPerRule: int64(max(perBucket, (places+1)/2)),
		NearLimitRatio: s.Telemetry.NearLimitRatio,
		Shadow:         s.Limits.Shadow, Quota: s.Limits.Quota, Strict: s.Strict(), StopWhenOver: s.Limits.StopWhenOver,
		LocalCache: s.Limits.LocalCache,
	}
}

// codec returns how the rate limit service answers.
func codec(s *settings.Settings) rls.Codec {
	return rls.Codec{
		Headers: s.Answers.ReplyHeaders(), ProblemBody: s.Answers.Body == "problem",
		Upstream: s.Answers.RequestHeaders(), DynamicMetadata: s.Answers.DynamicMetadata, Strict: s.Strict(),
	}
}

// patience returns how long a store may take, 0 if it never waits.
func patience(s *settings.Settings) time.Duration {
	if !s.UsesRedis() {
		return 0
	}
	wait := redisstore.Config{Timeout: s.Redis.Main.Timeout, WholeDeadline: s.Strict()}.MostWait()
	if s.Redis.UsePerSecond {
		wait = max(wait, redisstore.Config{Timeout: s.Redis.PerSecond.Timeout, WholeDeadline: s.Strict()}.MostWait())
	}
	return wait
}
