package testenv

import (
	"io"
	"net/http"
	"testing"
)

// RoundTrip makes a request and returns the response with its body and its trailers, or fails the test without one.
func RoundTrip(t testing.TB, transport http.RoundTripper, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read the body: %v", req.Method, req.URL, err)
	}
	return resp, string(body)
}
