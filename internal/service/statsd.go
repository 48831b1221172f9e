package service

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// newStatsd returns the sender of statistics, nil if none are sent. The log has a warning if the server of a setting
// cannot be reached. By default there may be no server.
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

// openStatistics registers the metrics of envoyproxy/ratelimit, and sends its statistics until closed is called, which
// waits until the last ones are sent.
func openStatistics(ctx context.Context, s *settings.Settings, stats *telemetry.Stats, log *slog.Logger,
	r prometheus.Registerer) (closed func(), err error) {
	mapping, err := metricMapping(s, log)
	if err != nil {
		return nil, err
	}
	r.MustRegister(telemetry.NewMapped(stats, mapping))
	statsd := newStatsd(s, log)
	stats.Calls.SendTimes(statsd)
	if statsd == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var sending sync.WaitGroup
	sending.Go(func() { statsd.Run(ctx, stats) })
	return func() { cancel(); sending.Wait() }, nil
}
