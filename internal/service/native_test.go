package service

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// TestNativePanic sends requests that arrive together, one of which causes a panic. Only that one fails, whether the
// goroutine that reads the connection answers or one that reads the replies of Redis.
func TestNativePanic(t *testing.T) {
	t.Parallel()
	bugs := func() *panics { return newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()) }
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		memory, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close()
		checkPanics(t, bugs(), &Settings{Transport: nativeTransport}, memory)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		caught := bugs()
		redis, err := redisstore.New(redisstore.Config{
			URL: testenv.Redis(t).Addr, Timeout: 10 * time.Second,
			Panicked: func(value any) { caught.caught("Redis", value) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer redis.Close()
		checkPanics(t, caught, &Settings{Transport: nativeTransport, BackendType: "redis"}, redis)
	})
}

func checkPanics(t *testing.T, bugs *panics, settings *Settings, store ratelimit.Store) {
	t.Helper()
	const limit = "\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]"
	parsed, problems := file.Parse([]file.File{
		{Name: "good.yaml", Content: []byte("domain: good" + limit)},
		{Name: "broken.yaml", Content: []byte("domain: broken" + limit)},
	}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	rules := ratelimit.NewRules(parsed.Domains, ratelimit.RulesOptions{})
	queue := hold.New(1)
	limits := rls.New(rls.Config{
		Limiter: ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return rules }, Store: store}), Queue: queue,
		Decided: func(_ context.Context, q ratelimit.Query, _ ratelimit.Result) { panicAt("broken", q.Domain) },
	})
	server := (&services{
		settings: settings, limits: limits, calls: telemetry.NewCalls(prometheus.NewRegistry()), bugs: bugs, queue: queue,
		health: newHealth(),
	}).transport()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(guard.New(l, guard.Config{Connections: 9, Bytes: 1 << 20, Metered: true}))
	}()

	got := askTogether(t, l.Addr().String(), "good", "broken", "good", "broken", "good")
	for i, want := range []string{"0", "13", "0", "13", "0"} {
		if got[i] != want {
			t.Errorf("request %d: grpc-status %q, want %q", i, got[i], want)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	server.Shutdown(over)
	if err := wrapServe("gRPC", <-served); err != nil {
		t.Error(err)
	}
}

// askTogether sends a request for each domain in one write, and returns the status of each.
func askTogether(t *testing.T, address string, domains ...string) (statuses []string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out, block bytes.Buffer
	_, _ = io.WriteString(&out, http2.ClientPreface)
	framer, encoder := http2.NewFramer(&out, conn), hpack.NewEncoder(&block)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	err = framer.WriteSettings()
	for i, domain := range domains {
		block.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: rls.Method},
			{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"},
		} {
			_ = encoder.WriteField(f) // to memory
		}
		id := uint32(2*i + 1)
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = framer.WriteData(id, true, framed(0, rateLimitRequest(domain, "ann")))
	}
	if _, writeErr := conn.Write(out.Bytes()); err != nil || writeErr != nil {
		t.Fatal(err, writeErr)
	}
	framer = http2.NewFramer(io.Discard, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	byStream := make(map[uint32]string)
	for len(byStream) < len(domains) {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if headers, ok := f.(*http2.MetaHeadersFrame); ok && headers.StreamEnded() {
			for _, h := range headers.Fields {
				if h.Name == "grpc-status" {
					byStream[headers.StreamID] = h.Value
				}
			}
		}
	}
	for i := range domains {
		statuses = append(statuses, byStream[uint32(2*i+1)])
	}
	return statuses
}
