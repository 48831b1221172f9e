package auth_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/test/testenv"
)

// outflow is the time between two requests to /held.
const outflow = 50 * time.Millisecond

// byPath decides by the first segment of the path: a name in goldenDecisions, or one of its own.
type byPath struct {
	held        atomic.Int64
	connections atomic.Bool // whether it allows connections of a TCP listener
	seen        sync.Map    // the last request to a path
}

func (b *byPath) decide(_ context.Context, r *authz.Request) authz.Decision {
	path, _, _ := strings.Cut(strings.Clone(r.Path), "?")
	b.seen.Store(path, clone(r))
	name, _, _ := strings.Cut(strings.Trim(path, "/"), "/")
	switch name {
	case "":
		if !r.HTTP && b.connections.Load() {
			return authz.Decision{Verdict: authz.Allowed}
		}
	case "held":
		slot := b.held.Add(1) - 1
		return authz.Decision{
			Verdict: authz.Allowed, Delay: slot * outflow.Microseconds(),
			ToUpstream: []reply.Header{{Name: "x-slot", Value: strconv.FormatInt(slot, 10)}},
		}
	case "slow":
		return authz.Decision{Verdict: authz.Allowed, Delay: time.Minute.Microseconds()}
	}
	return withLookalikes(goldenDecisions[name], r) // the zero value refuses
}

// clone copies all that the tests read of a request, because its message is gone after the answer.
func clone(r *authz.Request) authz.Request {
	kept := authz.Request{
		HTTP: r.HTTP, Method: strings.Clone(r.Method), Host: strings.Clone(r.Host), Path: strings.Clone(r.Path),
		Source: strings.Clone(r.Source), Extensions: make(map[string]string),
	}
	for _, h := range r.Headers {
		kept.Headers = append(kept.Headers, reply.Header{Name: strings.Clone(h.Name), Value: strings.Clone(h.Value)})
	}
	for name, value := range r.Extensions {
		kept.Extensions[strings.Clone(name)] = strings.Clone(value)
	}
	return kept
}

// last returns the last request to a path.
func (b *byPath) last(t *testing.T, path string) authz.Request {
	t.Helper()
	r, ok := b.seen.Load(path)
	if !ok {
		t.Fatalf("no request to %s", path)
	}
	return r.(authz.Request)
}

// seen is a request as the upstream receives it.
type seen struct {
	URI    string
	Header http.Header
}

// echoUpstream answers with the request that it receives, and with a limit of its own.
func echoUpstream(t *testing.T) (addr string) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ratelimit", `"upstream";r=1`)
		if strings.HasPrefix(r.Header.Get("content-type"), "application/grpc") {
			w.Header().Set("content-type", "application/grpc")
			_, _ = w.Write(make([]byte, 5)) // an empty message
			w.Header().Set(http.TrailerPrefix+"grpc-status", "0")
			return
		}
		_ = json.NewEncoder(w).Encode(seen{r.RequestURI, r.Header})
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// gateway is an Envoy that asks both services about requests to an upstream.
type gateway struct {
	*testenv.EnvoyProxy
	authorizer *byPath
	queue      *flow.Queue
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	config, err := os.ReadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{authorizer: new(byPath), queue: flow.NewQueue(1000)}
	server := newFlow(flow.Config{
		Authorizer: authorizer(g.authorizer.decide), Queue: g.queue,
		HTTP: flow.HTTPConfig{Headers: auth.HTTPHeaders{Source: "x-envoy-source"}, Timeout: 2 * time.Minute},
	})
	overHTTP := httptest.NewServer(server.Checks(http.NotFoundHandler()))
	t.Cleanup(overHTTP.Close)
	g.EnvoyProxy = testenv.Envoy(t, string(config), testenv.Ports{
		10000: 0, 10001: 0, 10002: 0, 10003: 0,
		8000: testenv.Port(t, echoUpstream(t)),
		8081: testenv.Port(t, listen(t, server)),
		8080: testenv.Port(t, overHTTP.Listener.Addr().String()),
	})
	return g
}

// get sends a request to a listener on a connection of its own.
func (g *gateway) get(t *testing.T, listener, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.Listener(listener)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header[header[i]] = append(req.Header[header[i]], header[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	return testenv.RoundTrip(t, transport, req)
}

// call makes a gRPC call through a listener.
func (g *gateway) call(t *testing.T, listener, method string) error {
	t.Helper()
	conn, err := grpc.NewClient(g.Listener(listener),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.Invoke(t.Context(), method, new(emptypb.Empty), new(emptypb.Empty))
}
