package service

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/test/testenv"
)

// native are settings of the native transport.
var native = &settings.Settings{Listeners: settings.Listeners{Transport: nativeTransport, MaxStreams: 1024}}

// TestNativePanic sends requests that arrive together, some of which cause a panic before, in or after the call of the
// store. Only those fail. Either the goroutine that reads the connection answers, or one that reads the replies of
// Redis. No request is charged twice.
func TestNativePanic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		where string // "before": while a call is planned; "in": in Store.Start; "after": while a call is answered
		want  map[uint32]string
		// charged are the units that the requests have taken: those that passed, and those that failed afterwards.
		charged int64
	}{
		{"before", map[uint32]string{1: "0", 3: "13", 5: "0", 7: "13", 9: "0"}, 3},
		{"in", map[uint32]string{1: "0", 3: "13", 5: "13", 7: "13", 9: "13"}, 1}, // those after the first one are not decided
		{"after", map[uint32]string{1: "0", 3: "13", 5: "0", 7: "13", 9: "0"}, 5},
	} {
		t.Run(c.where+"/memory", func(t *testing.T) {
			t.Parallel()
			memory, err := memstore.New(memstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer memory.Close()
			checkPanics(t, c.where, 0, memory, c.want, c.charged)
		})
		t.Run(c.where+"/redis", func(t *testing.T) {
			t.Parallel()
			redis, err := redisstore.New(redisstore.Config{URL: testenv.Redis(t).Addr, Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer redis.Close()
			checkPanics(t, c.where, 10*time.Second, redis, c.want, c.charged)
		})
	}
}

// checkPanics sends requests of both services, the second and the fourth of which cause a panic.
func checkPanics(t *testing.T, where string, patience time.Duration, store ratelimit.Store, want map[uint32]string,
	charged int64) {
	t.Helper()
	const limit = "\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100, algorithm: token_bucket}}]"
	parsed, problems := file.Parse([]file.File{
		{Name: "good.yaml", Content: []byte("domain: good" + limit)},
		{Name: "broken.yaml", Content: []byte("domain: broken" + limit)},
	}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	rules := ratelimit.NewRules(parsed.Domains, ratelimit.RulesOptions{})
	active := func() *ratelimit.Rules { return rules }
	for _, c := range []struct {
		method  string
		message func(name string) []byte
		// buckets are those of the two names.
		buckets []ratelimit.Query
	}{
		{rls.Method, func(domain string) []byte { return rateLimitRequest(domain, "ann") },
			[]ratelimit.Query{peekOf("good", "ann"), peekOf("broken", "ann")}},
		{auth.Method, checkRequest, []ratelimit.Query{peekOf("good", "good"), peekOf("good", "broken")}},
	} {
		places := &panicPlaces{Store: store, where: where, rules: rules}
		address := serveNative(t, newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()), flow.Config{
			Limiter:    ratelimit.New(ratelimit.Config{Rules: places.Rules, Store: places}),
			Authorizer: new(byHost), Patience: patience,
			Log: telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
				Log: slog.New(places), Rules: active, Values: ratelimit.ShowValues,
			}),
		})
		framer := sendTogether(t, address, c.method, c.message("good"), c.message("broken"), c.message("good"),
			c.message("broken"), c.message("good"))
		if answered := readStatuses(t, framer, len(want)); !maps.Equal(answered, want) {
			t.Errorf("%s: got %v, want %v", c.method, answered, want)
		}
		results := make([]ratelimit.Result, len(c.buckets))
		ratelimit.New(ratelimit.Config{Rules: active, Store: store}).DecideAll(t.Context(), c.buckets, results)
		got := int64(0)
		for _, res := range results {
			got += 100 - res.Limits[0].Decision.Remaining
		}
		if got != charged {
			t.Errorf("%s: %d requests are charged, want %d", c.method, got, charged)
		}
	}
}

// peekOf asks for the bucket of a user, and charges nothing.
func peekOf(domain, user string) ratelimit.Query {
	return ratelimit.Query{Domain: domain, Descriptors: []descriptors.Descriptor{{
		Entries: []descriptors.Entry{{Key: "user", Value: user}}, Hits: new(uint64),
	}}}
}

// panicPlaces is a store, the source of rules and the handler of a log, one of which panics.
type panicPlaces struct {
	ratelimit.Store
	slog.Handler
	where   string
	rules   *ratelimit.Rules
	planned atomic.Int64
}

// Rules returns the rules while a call is planned.
func (p *panicPlaces) Rules() *ratelimit.Rules {
	if p.planned.Add(1)%2 == 0 && p.where == "before" {
		panic("a bug before the call of the store")
	}
	return p.rules
}

// Start implements ratelimit.Store.
func (p *panicPlaces) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	if p.where == "in" {
		ratelimit.Take(ctx, p.Store, requests[:1], outcomes[:1])
		panic("a bug in the store")
	}
	p.Store.Start(ctx, requests, outcomes, done)
}

// Enabled implements slog.Handler.
func (*panicPlaces) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (p *panicPlaces) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if p.where == "after" && a.Value.String() == "broken" {
			panic("a bug after the call of the store")
		}
		return true
	})
	return nil
}

// TestNativePanicWhileCounting has a panic while the calls of a batch are counted. Each of them fails, once.
func TestNativePanicWhileCounting(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"by the reader": 0, "by the reader or another": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			none := new(ratelimit.Rules)
			bugs := newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			address := serveTransport(t, requestsOf(native, bugs, nil, flow.New(flow.Config{
				Limiter: ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return none }}),
				Queue:   flow.NewQueue(1), Patience: patience, Panicked: bugs.caught,
				Calls: new(telemetry.Calls), // it panics
			})).transport())
			framer := sendTogether(t, address, rls.Method,
				rateLimitRequest("shop", "ann"), rateLimitRequest("shop", "bob"), rateLimitRequest("shop", "cid"))
			want := map[uint32]string{1: "13", 3: "13", 5: "13"}
			if got := readStatuses(t, framer, len(want)); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// serveNative serves a flow over the native transport, and returns its address.
func serveNative(t *testing.T, bugs *panics, cfg flow.Config) (address string) {
	t.Helper()
	cfg.Queue, cfg.Calls, cfg.Panicked = flow.NewQueue(1), telemetry.NewCalls(prometheus.NewRegistry()), bugs.caught
	return serveTransport(t, requestsOf(native, bugs, cfg.Calls, flow.New(cfg)).transport())
}

// requestsOf returns the parts of requests that a transport needs.
func requestsOf(s *settings.Settings, bugs *panics, calls *telemetry.Calls, f *flow.Flow) *requests {
	p := &process{Config: Config{Settings: s}, log: bugs.log, bugs: bugs}
	return &requests{activeRules: &activeRules{stores: &stores{process: p}, ready: newHealth()}, Flow: f, calls: calls}
}

func serveTransport(t *testing.T, server transport) (address string) {
	t.Helper()
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
