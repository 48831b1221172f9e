package service

import (
	"context"
	"log/slog"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// observers are called with each decision of the services. They are nil if nothing would come of it.
type observers struct {
	rateLimit func(context.Context, ratelimit.Query, ratelimit.Result)
	check     func(context.Context, auth.Checked)
	close     func() // after the last decision
}

func newObservers(s *Settings, live *rules.Live, log *slog.Logger) observers {
	o := observers{close: func() {}}
	if log.Enabled(context.Background(), slog.LevelInfo) {
		decisions := telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
			Log: log, Rules: live.Limits, Values: ratelimit.ClientValues(s.LogClientValues),
		})
		o.rateLimit, o.check, o.close = decisions.RateLimit, decisions.Check, decisions.Flush
	}
	return o
}
