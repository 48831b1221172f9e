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
)

// maxDocument bounds what is read of a JWK Set. Those of the largest issuers have some 20 kB.
const maxDocument = 1 << 20

// How long keys from a URL are taken to be fresh: as Cache-Control says, within bounds, so that a withdrawn key is trusted for an
// hour at most, and no issuer is asked more than once a minute for want of a request that needs it.
const (
	freshByDefault = 10 * time.Minute
	freshAtLeast   = time.Minute
	freshAtMost    = time.Hour
)

// fetchFloor is the least time between two fetches that unknown kids, which anybody can send, can cause.
const fetchFloor = 30 * time.Second

// newClient returns what fetches keys. Its transport keeps no connections: there are minutes between two fetches.
func newClient(cfg Config) *http.Client {
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &http.Client{
		Transport: cfg.Transport,
		Timeout:   cfg.Timeout,
		// An issuer's server that can be made to redirect must not choose the keys.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// endpoint is the origin at a URL.
func endpoint(address string, client *http.Client) origin {
	return origin{address, fetchFloor, func(ctx context.Context) (text []byte, fresh time.Duration, err error) {
		if text, fresh, err = fetch(ctx, address, client); err != nil {
			err = fmt.Errorf("fetch keys: %w", err)
		}
		return text, fresh, err
	}}
}

func fetch(ctx context.Context, address string, client *http.Client) (text []byte, fresh time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json;q=0.9")
	request.Header.Set("User-Agent", "extauthz")
	response, err := client.Do(request)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, 0, e.Err // without the URL, which is the name of the origin
	}
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("the status is %d, want 200", response.StatusCode)
	}
	text, err = readBounded(response.Body)
	return text, freshness(response.Header), err
}

// readBounded reads all of a document that is not too long. What a compressed one expands to counts.
func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxDocument:
		return nil, fmt.Errorf("it is longer than %d bytes", maxDocument)
	}
	return text, nil
}

// freshness is how long a response is fresh (RFC 9111, 4.2), within our bounds.
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
