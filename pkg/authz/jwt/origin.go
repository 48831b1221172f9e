package jwt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
)

// origin is where keys come from: a file, a URL, or what an issuer publishes.
type origin struct {
	// name is unique among origins. It can be logged.
	name string
	// task begins the errors of readings.
	task string
	// floor is the least time between two readings because of requests or errors.
	floor time.Duration
	// read returns the document, of which it reads maxDocument+1 bytes at most, and how long it is fresh.
	read func(ctx context.Context) (text []byte, fresh time.Duration, err error)
}

// maxDocument is the largest JWK Set in bytes. Those of the largest issuers have some 20 kB.
const maxDocument = 1 << 20

// How long keys from a URL are fresh. Cache-Control decides, within bounds that end withdrawn keys.
const (
	freshByDefault = 10 * time.Minute
	freshAtLeast   = time.Minute
	freshAtMost    = time.Hour
)

// fetchFloor is the least time between two fetches for unknown kids. Any client can send an unknown kid.
const fetchFloor = 30 * time.Second

// pollInterval is how often a file is read. A half-written file is an error: no part of a JSON object is a JSON object.
const pollInterval = time.Second

// file returns the origin at a path.
func file(path string) origin {
	return origin{path, "read keys from " + path, pollInterval, func(context.Context) ([]byte, time.Duration, error) {
		text, _, err := poll.Read(path, maxDocument)
		return text, pollInterval, err
	}}
}

// newClient returns a client that keeps up to idle connections. Fetches of keys keep none: they are minutes apart.
func newClient(cfg Config, idle int) *http.Client {
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives: idle == 0, MaxIdleConnsPerHost: idle, IdleConnTimeout: time.Minute,
		}
	}
	return &http.Client{
		Transport: cfg.Transport,
		Timeout:   cfg.Timeout,
		// An attacker who can make the issuer's server redirect must not choose the keys.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// endpoint returns the origin at a URL.
func endpoint(address string, client *http.Client) origin {
	return origin{address, "fetch keys", fetchFloor, func(ctx context.Context) ([]byte, time.Duration, error) {
		return fetch(ctx, address, client)
	}}
}

func fetch(ctx context.Context, address string, client *http.Client) (text []byte, fresh time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	text, header, err := exchange(client, request, "application/jwk-set+json, application/json;q=0.9")
	return text, freshness(header), err
}

// exchange returns the body of a response with status 200, at most maxDocument+1 bytes of it, and its header.
func exchange(client *http.Client, request *http.Request, accept string) ([]byte, http.Header, error) {
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "extauthz")
	response, err := client.Do(request)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, nil, e.Err // without the URL: callers name it
	}
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the status is %d, want 200", response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1)) // the decompressed size counts
	return text, response.Header, err
}

// freshness returns how long a response is fresh (RFC 9111, 4.2), within the bounds above.
func freshness(h http.Header) time.Duration {
	fresh := freshByDefault
	for directive := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return freshAtLeast
		case "max-age":
			if seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				fresh = time.Duration(seconds) * time.Second
			}
		}
	}
	if seconds, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil { // spent in a cache on the way
		fresh -= time.Duration(seconds) * time.Second
	}
	return min(max(fresh, freshAtLeast), freshAtMost)
}
