package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"

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
		InstanceID:       s.Telemetry.TracingInstanceID, SamplingRate: s.Telemetry.TracingRate, Log: log,
		Failed: func(err error) {
			if logged.allow("") {
				log.Warn("OpenTelemetry reports an error; spans are lost if it is about the collector (logged once a minute)",
					"error", err)
			}
		},
	})
}

// newStatsd returns the sender of statistics, nil for none. It warns only if the operator has chosen the server.
func newStatsd(s *settings.Settings, log *slog.Logger) *telemetry.Statsd {
	t := &s.Telemetry
	if !t.UseStatsd && !t.UseDogStatsd {
		return nil
	}
	cfg := telemetry.StatsdConfig{
		Network: t.StatsdProtocol, Address: net.JoinHostPort(t.StatsdHost, strconv.Itoa(int(t.StatsdPort))),
		Interval: t.FlushInterval, Tags: t.ExtraTags, Dog: t.UseDogStatsd, Mogrifiers: t.Mogrifiers,
		Log: log, Level: slog.LevelInfo,
	}
	if t.UseDogStatsd {
		cfg.Network = "udp"
	}
	if t.StatsdChosen {
		cfg.Level = slog.LevelWarn
	}
	return telemetry.NewStatsd(cfg)
}

// openStatistics registers the metrics of envoyproxy/ratelimit. closed waits until its last statistics are sent.
func (r *requests) openStatistics(ctx context.Context, s *settings.Settings) (closed func(), err error) {
	mapping, err := metricMapping(s, r.log)
	if err != nil {
		return nil, err
	}
	stats := &telemetry.Stats{
		Rules: r.live.Limits, Totals: r.limiter.Totals(), Loads: r.source.counts, Calls: r.calls, Pools: r.pools,
	}
	r.registry.MustRegister(telemetry.NewMapped(stats, mapping))
	statsd := newStatsd(s, r.log)
	r.calls.SendTimes(statsd)
	if statsd == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var sending sync.WaitGroup
	sending.Go(func() { statsd.Run(ctx, stats) })
	return func() { cancel(); sending.Wait() }, nil
}

// metricMapping reads PROMETHEUS_MAPPER_YAML. Envoy Gateway names a file there that need not exist.
func metricMapping(s *settings.Settings, log *slog.Logger) (*telemetry.Mapping, error) {
	standard := telemetry.DefaultMapping()
	if s.Telemetry.MetricMapping == "" {
		if s.Telemetry.Milliseconds {
			standard = standard.WithoutScale()
		}
		return standard, nil
	}
	text, err := os.ReadFile(s.Telemetry.MetricMapping)
	if errors.Is(err, fs.ErrNotExist) {
		log.Warn("the file of PROMETHEUS_MAPPER_YAML does not exist; metrics have the names of the default mapping")
		return standard, nil
	}
	if err != nil {
		return nil, fmt.Errorf("PROMETHEUS_MAPPER_YAML: cannot read the file: %w", reason(err))
	}
	mapping, err := telemetry.ParseMapping(text)
	if err != nil {
		return nil, fmt.Errorf("PROMETHEUS_MAPPER_YAML: the file has mistakes; "+
			"fix them, or unset it for the default names:\n%w", err)
	}
	return mapping, nil
}
