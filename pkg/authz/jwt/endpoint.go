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

// maxDocument is the largest JWK Set in bytes. Those of the largest issuers have some 20 kB.
const maxDocument = 1 << 20

// How long keys from a URL are fresh. Cache-Control decides, within bounds: a withdrawn key is trusted for at most an
// hour, and an issuer gets at most one scheduled fetch a minute.
const (
	freshByDefault = 10 * time.Minute
	freshAtLeast   = time.Minute
	freshAtMost    = time.Hour
)

// fetchFloor is the least time between two fetches for unknown kids. Any client can send an unknown kid.
const fetchFloor = 30 * time.Second

// newClient returns the client that fetches keys. It keeps no connections, because fetches are minutes apart.
func newClient(cfg Config) *http.Client {
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
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
		return nil, 0, e.Err // without the URL: it is the name of the origin already
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

// readBounded reads a document of at most maxDocument bytes. For a compressed one, the decompressed size counts.
func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, err
	}
	return text, checkSize(text)
}

// checkSize reports a document of more than maxDocument bytes.
func checkSize(text []byte) error {
	if len(text) > maxDocument {
		return fmt.Errorf("it is longer than %d bytes", maxDocument)
	}
	return nil
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
