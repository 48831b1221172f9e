package service

import (
	"context"
	"log/slog"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// openTracing returns nil without TRACING_ENABLED: then no request has a span.
func openTracing(ctx context.Context, s *settings.Settings, log *slog.Logger) (*telemetry.Tracing, error) {
	if !s.Telemetry.Tracing {
		return nil, nil
	}
	var logged logLimiter
	return telemetry.NewTracing(ctx, telemetry.TracingConfig{
		Protocol: s.Telemetry.TracingProtocol, ServiceName: s.Telemetry.TracingName,
		ServiceNamespace: s.Telemetry.TracingNamespace,
		InstanceID:       s.Telemetry.TracingInstanceID, SamplingRate: float64(s.Telemetry.TracingRate), Log: log,
		Failed: func(err error) {
			if logged.allow("") {
				log.Warn("OpenTelemetry reports an error; spans are lost if it is about the collector (logged once a minute)",
					"error", err)
			}
		},
	})
}
