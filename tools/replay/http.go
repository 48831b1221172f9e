package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// CompareHTTP sends requests to a Spring Cloud Gateway and to an Envoy in front of the service, one after the other. It
// compares the status and the rate limit headers of the answers. It ends early with an error as Compare does.
func CompareHTTP(ctx context.Context, cfg Config, requests []*HTTPRequest) (*Report, error) {
	older, newer := newGateway(cfg.Old), newGateway(cfg.New)
	return replay(ctx, requests, older.call, newer.call, newHTTPJudge(cfg.Gateway).compare, cfg.Progress)
}

// gateway is a client of an HTTP server.
type gateway struct {
	address string
	client  http.Client
}

// newGateway returns a client that sends each request once: it repeats none, and follows no redirect.
func newGateway(address string) *gateway {
	const maxHeader = 64 << 10
	return &gateway{address, http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			DisableKeepAlives:      true, // a connection that is used again may have ended, and its request would be repeated
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// httpAnswer is the answer of a gateway.
type httpAnswer struct {
	status int
	// limit has the rate limit headers, "" for those that are missing.
	limit [len(limitHeaders)]string
	// sent and received are the times before and after the call.
	sent, received time.Time
}

// limitHeaders are the headers that both gateways send, and what they are called in a report.
var limitHeaders = [...]struct{ name, what string }{
	remaining:      {"X-RateLimit-Remaining", "remaining"},
	replenishRate:  {"X-RateLimit-Replenish-Rate", "replenish rate"},
	burstCapacity:  {"X-RateLimit-Burst-Capacity", "burst capacity"},
	requestedToken: {"X-RateLimit-Requested-Tokens", "requested tokens"},
}

// The indexes of limitHeaders.
const (
	remaining = iota
	replenishRate
	burstCapacity
	requestedToken
)

// call sends a request. It is an error that there is no answer.
func (g *gateway) call(ctx context.Context, r *HTTPRequest) (httpAnswer, error) {
	u, err := r.target(g.address)
	if err != nil {
		return httpAnswer{}, err
	}
	out, err := http.NewRequestWithContext(ctx, r.Method, u.String(), nil)
	if err != nil {
		return httpAnswer{}, err
	}
	for name, value := range r.Headers {
		out.Header.Set(name, value)
		if strings.EqualFold(name, "host") {
			out.Host = value
		}
	}
	a := httpAnswer{sent: time.Now()}
	in, err := g.client.Do(out)
	if err != nil {
		if cause, ok := errors.AsType[*url.Error](err); ok {
			err = cause.Err // without the URL, which may have a secret in its query
		}
		return httpAnswer{}, fmt.Errorf("%s does not answer: %w", g.address, err)
	}
	defer func() { _ = in.Body.Close() }() // the answer is complete
	a.received = time.Now()
	a.status = in.StatusCode
	for i, h := range limitHeaders {
		a.limit[i] = in.Header.Get(h.name)
	}
	const most = 1 << 20 // a longer body is cut off
	_, _ = io.CopyN(io.Discard, in.Body, most)
	return a, nil
}

// has reports whether the answer has any rate limit header.
func (a *httpAnswer) has() bool { return a.limit != [len(limitHeaders)]string{} }

// denied reports whether the new gateway denies the request because of its limit.
func (a *httpAnswer) denied() bool { return a.status == http.StatusTooManyRequests }

// refused reports whether the new gateway refuses the request for another reason, such as an unknown key.
func (a *httpAnswer) refused() bool {
	return !a.has() && (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden)
}
