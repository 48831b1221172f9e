package service

import (
	"context"
	"log/slog"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// observers are called with each decision of the services. A service calls nothing if the log has no decisions and
// there are no traces.
type observers struct {
	log    *telemetry.DecisionLog // nil unless LOG_LEVEL has decisions
	traces *tracing               // nil unless TRACING_ENABLED
}

func newObservers(s *Settings, live *rules.Live, traces *tracing, log *slog.Logger) observers {
	o := observers{traces: traces}
	if log.Enabled(context.Background(), slog.LevelInfo) {
		o.log = telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
			Log: log, Rules: live.Limits, Values: ratelimit.ClientValues(s.LogClientValues),
		})
	}
	return o
}

// rateLimit returns what to call with the decisions of the rate limit service, nil for nothing.
func (o observers) rateLimit() func(context.Context, ratelimit.Query, ratelimit.Result) {
	switch {
	case o.log == nil && o.traces == nil:
		return nil
	case o.traces == nil:
		return o.log.RateLimit
	case o.log == nil:
		return o.traces.RateLimit
	}
	return func(ctx context.Context, q ratelimit.Query, res ratelimit.Result) {
		o.log.RateLimit(ctx, q, res)
		o.traces.RateLimit(ctx, q, res)
	}
}

// check returns what to call with the decisions of ext_authz, nil for nothing.
func (o observers) check() func(context.Context, authz.Checked) {
	switch {
	case o.log == nil && o.traces == nil:
		return nil
	case o.traces == nil:
		return o.log.Check
	case o.log == nil:
		return o.traces.Check
	}
	return func(ctx context.Context, c authz.Checked) {
		o.log.Check(ctx, c)
		o.traces.Check(ctx, c)
	}
}

// close must run after the last decision.
func (o observers) close() {
	if o.log != nil {
		o.log.Flush()
	}
}
