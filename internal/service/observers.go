package service

import (
	"context"
	"log/slog"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// newDecisionLog returns the log of decisions, nil unless LOG_LEVEL has decisions.
func newDecisionLog(s *settings.Settings, live *rules.Live, log *slog.Logger) *telemetry.DecisionLog {
	if !log.Enabled(context.Background(), slog.LevelInfo) {
		return nil
	}
	return telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
		Log: log, Rules: live.Limits, Values: ratelimit.ClientValues(s.Telemetry.LogClientValues),
	})
}
