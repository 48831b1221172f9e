package testenv

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Upstream starts an HTTP server for the length of the test and returns its address. It answers every request with
// 200 and the request line, over HTTP/1.1 and over HTTP/2 without TLS. A gRPC call gets an empty message and OK.
func Upstream(t testing.TB) (addr string) {
	t.Helper()
	return UpstreamFunc(t, answer)
}

// UpstreamFunc starts a server like that of Upstream, with the test's own handler.
func UpstreamFunc(t testing.TB, answer http.HandlerFunc) (addr string) {
	t.Helper()
	s := httptest.NewUnstartedServer(answer)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	// The tests send headers up to Envoy's limit of 60 KiB.
	s.Config.MaxHeaderBytes = 1 << 20
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func answer(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		_, _ = fmt.Fprintf(w, "%s %s\n", r.Method, r.URL)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	_, _ = w.Write(make([]byte, 5)) // the frame of a message of length 0
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}

// Port returns the port of an address.
func Port(t testing.TB, addr string) int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatalf("the port of %q: %v", addr, err)
	}
	return a.Port
}
