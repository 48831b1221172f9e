package service

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
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
	limiter := ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return rules }, Store: store})
	address := serveNative(t, settings, bugs, rls.Config{
		Limiter: limiter,
		Decided: func(_ context.Context, q ratelimit.Query, _ ratelimit.Result) { panicAt("broken", q.Domain) },
	}, auth.Config{
		Limiter: limiter, Authorizer: &byHost{},
		Decided: func(_ context.Context, c authz.Checked) { panicAt("broken", c.Request.Host) },
	})
	for method, message := range map[string]func(name string) []byte{
		rls.Method: func(domain string) []byte { return rateLimitRequest(domain, "ann") }, auth.Method: checkRequest,
	} {
		framer := sendTogether(t, address, method,
			message("good"), message("broken"), message("good"), message("broken"), message("good"))
		want := map[uint32]string{1: "0", 3: "13", 5: "0", 7: "13", 9: "0"}
		if got := readStatuses(t, framer, len(want)); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", method, got, want)
		}
	}
}

// TestNativePanicWhileAnswering has a panic while the calls of a batch are answered. Each of them fails, once.
func TestNativePanicWhileAnswering(t *testing.T) {
	t.Parallel()
	for name, backend := range map[string]string{"by the reader": "memory", "by the reader or another": "redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := hold.New(1)
			none := new(ratelimit.Rules)
			address := serveServices(t, &services{
				settings: &Settings{Transport: nativeTransport, BackendType: backend},
				limits: rls.New(rls.Config{Queue: queue, Limiter: ratelimit.New(ratelimit.Config{
					Rules: func() *ratelimit.Rules { return none },
				})}),
				calls: new(telemetry.Calls), // it panics
				bugs:  newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()), queue: queue, health: newHealth(),
			})
			framer := sendTogether(t, address, rls.Method,
				rateLimitRequest("shop", "ann"), rateLimitRequest("shop", "bob"), rateLimitRequest("shop", "cid"))
			want := map[uint32]string{1: "13", 3: "13", 5: "13"}
			if got := readStatuses(t, framer, len(want)); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// serveNative serves both services over the native transport, and returns its address.
func serveNative(t *testing.T, s *Settings, bugs *panics, limits rls.Config, checks auth.Config) (address string) {
	t.Helper()
	queue := hold.New(1)
	limits.Queue, checks.Queue, checks.Log = queue, queue, slog.New(slog.DiscardHandler)
	return serveServices(t, &services{
		settings: s, limits: rls.New(limits), check: auth.New(checks),
		calls: telemetry.NewCalls(prometheus.NewRegistry()), bugs: bugs, queue: queue, health: newHealth(),
	})
}

func serveServices(t *testing.T, s *services) (address string) {
	t.Helper()
	server := s.transport()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(guard.New(l, guard.Config{Connections: 9, Bytes: 1 << 20, Metered: true}))
	}()
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		server.Shutdown(over)
		if err := wrapServe("gRPC", <-served); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// sendTogether sends messages in one write, as streams 1, 3, 5 and so on. It returns the reader of the answers.
func sendTogether(t *testing.T, address, method string, messages ...[]byte) *http2.Framer {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var out, block bytes.Buffer
	_, _ = io.WriteString(&out, http2.ClientPreface)
	framer, encoder := http2.NewFramer(&out, conn), hpack.NewEncoder(&block)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	err = framer.WriteSettings()
	for i, message := range messages {
		block.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
			{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"},
		} {
			_ = encoder.WriteField(f) // to memory
		}
		id := uint32(2*i + 1)
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = framer.WriteData(id, true, framed(0, message))
	}
	if _, writeErr := conn.Write(out.Bytes()); err != nil || writeErr != nil {
		t.Fatal(err, writeErr)
	}
	framer = http2.NewFramer(io.Discard, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return framer
}

// readStatuses reads the next answers, and returns their status by stream.
func readStatuses(t *testing.T, framer *http2.Framer, number int) map[uint32]string {
	t.Helper()
	byStream := make(map[uint32]string)
	for len(byStream) < number {
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
	return byStream
}
