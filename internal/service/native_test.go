package service

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// TestNativePanic sends requests that arrive together, one of which causes a panic. Only that one fails.
func TestNativePanic(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	rules := ratelimit.NewRules(nil, ratelimit.RulesOptions{})
	queue := hold.New(1)
	limits := rls.New(rls.Config{
		Limiter: ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return rules }}), Queue: queue,
		Decided: func(_ context.Context, q ratelimit.Query, _ ratelimit.Result) { panicAt("broken", q.Domain) },
	})
	bugs := newPanics(slog.New(slog.DiscardHandler), registry)
	settings := &Settings{Transport: nativeTransport}
	server := (&services{
		settings: settings, limits: limits, calls: telemetry.NewCalls(registry), bugs: bugs, queue: queue,
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
		const domainField, descriptorsField = 1<<3 | wire.Bytes, 2<<3 | wire.Bytes
		message := wire.AppendText(wire.AppendText(nil, domainField, domain), descriptorsField, "")
		_ = framer.WriteData(id, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
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
