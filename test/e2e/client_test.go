package e2e

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// proxy is the Envoy that clients see.
type proxy struct {
	*testenv.EnvoyProxy
	addr string
	tls  *tls.Config // for clients; nil for plain HTTP
}

// ratelimitStat returns a counter of Envoy's rate limit filter: ok, over_limit, error or failure_mode_allowed.
func (p *proxy) ratelimitStat(outcome string) int {
	return p.Stat("cluster.application.ratelimit." + outcome)
}

// checkNoFailures checks that no call of Envoy's rate limit filter failed. Envoy would have allowed that request
// without a limit.
func (p *proxy) checkNoFailures(t *testing.T) {
	t.Helper()
	if n := p.ratelimitStat("error"); n != 0 {
		t.Errorf("ratelimit.error: got %d, want 0: these requests were allowed without a limit", n)
	}
	if p.ratelimitStat("ok") == 0 {
		t.Error("ratelimit.ok: got 0: Envoy did not call the service")
	}
}

// call is a request of a client.
type call struct {
	method, path string
	header       [][2]string
	from         string // the client's address; empty: 127.0.0.1
	grpc         bool   // a gRPC call with an empty message
}

// answer is the response that the client receives.
type answer struct {
	status     int
	grpcStatus string
	header     http.Header
	body       string
	end        time.Time // of the response
}

// do makes a call on a new connection.
func (p *proxy) do(t *testing.T, c call) answer {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: p.tls}
	transport.Protocols.SetHTTP1(!c.grpc)
	transport.Protocols.SetUnencryptedHTTP2(c.grpc)
	if c.from != "" {
		transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}}).DialContext
	}
	defer transport.CloseIdleConnections()

	resp, body := testenv.RoundTrip(t, transport, p.request(t, c))
	a := answer{status: resp.StatusCode, header: resp.Header, body: body, end: time.Now()}
	// A gRPC response without a message has its trailers in place of headers.
	if a.grpcStatus = resp.Trailer.Get("Grpc-Status"); a.grpcStatus == "" {
		a.grpcStatus = resp.Header.Get("Grpc-Status")
	}
	return a
}

func (p *proxy) request(t *testing.T, c call) *http.Request {
	t.Helper()
	var body io.Reader
	if c.grpc {
		body = bytes.NewReader(make([]byte, 5))
	}
	scheme := "http://"
	if p.tls != nil {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(t.Context(), c.method, scheme+p.addr+c.path, body)
	if err != nil {
		t.Fatal(err)
	}
	if c.grpc {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
	}
	for _, h := range c.header {
		req.Header.Add(h[0], h[1])
	}
	return req
}

// tally makes a call n times and returns the numbers of allowed and denied calls. Any other answer fails the test.
func (p *proxy) tally(t *testing.T, n int, c call) (allowed, denied int) {
	t.Helper()
	for range n {
		switch a := p.do(t, c); a.status {
		case http.StatusOK:
			allowed++
		case http.StatusTooManyRequests:
			denied++
		default:
			t.Fatalf("%s %s: got %d %q, want 200 or 429", c.method, c.path, a.status, a.body)
		}
	}
	return allowed, denied
}
