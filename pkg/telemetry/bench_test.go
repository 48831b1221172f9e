package telemetry_test

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/pkg/telemetry"
)

// BenchmarkObserve counts a call, without statsd and with a server that receives its time, and a call to Redis.
func BenchmarkObserve(b *testing.B) {
	const rpc = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	b.Run("call", func(b *testing.B) {
		calls := telemetry.NewCalls(prometheus.NewRegistry())
		b.ReportAllocs()
		for b.Loop() {
			calls.Of(rpc).Observe(codes.OK, 30*time.Microsecond)
		}
	})
	b.Run("call with statsd", func(b *testing.B) {
		server, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = server.Close() })
		statsd := telemetry.NewStatsd(telemetry.StatsdConfig{
			Network: "udp", Address: server.LocalAddr().String(), Interval: time.Hour, Log: slog.New(slog.DiscardHandler),
		})
		statsd.Connect(b.Context())
		calls := telemetry.NewCalls(prometheus.NewRegistry())
		calls.SendTimes(statsd)
		b.ReportAllocs()
		for b.Loop() {
			calls.Of(rpc).Observe(codes.OK, 30*time.Microsecond)
		}
	})
	b.Run("redis", func(b *testing.B) {
		took := telemetry.NewRedisTimes(prometheus.NewRegistry())
		b.ReportAllocs()
		for b.Loop() {
			took(300 * time.Microsecond)
		}
	})
}
