package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
)

const (
	echoVariable = "ECHO_ADDRESS"
	echoAddress  = "127.0.0.1:8000"
	// echoDrain is how long the shutdown waits for requests in flight, although Echo answers each request at once.
	echoDrain = 5 * time.Second
)

// Echo serves a test upstream until ctx is done. It answers each request with the method, path and headers that it
// received. Some requests get the answers that the pages of the cookbook need (serveApplication).
func Echo(ctx context.Context, address string, stderr io.Writer) error {
	listener, err := listenEcho(cmp.Or(address, echoAddress))
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "extauthz: echo listens on %s\n", listener.Addr())
	return serveEcho(ctx, listener)
}

func listenEcho(address string) (net.Listener, error) {
	var to settings.HostPort
	if to.UnmarshalText([]byte(address)) != nil {
		return nil, fmt.Errorf("%s=%q: want host:port, such as %s", echoVariable, address, echoAddress)
	}
	return tcpAddress{echoVariable, to.Host, echoVariable, to.Port}.listen()
}

// serveEcho serves until ctx is done. Then it lets requests in flight finish and returns nil.
func serveEcho(ctx context.Context, listener net.Listener) error {
	server := newHTTPServer(http.HandlerFunc(serveEchoed))
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // as a cluster with http2_protocol_options sends it
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.Background(), echoDrain)
		defer cancel()
		drained <- server.Shutdown(patience)
	}()
	if err := wrapServe("HTTP", server.Serve(listener)); err != nil {
		return err
	}
	return <-drained
}

// echoed is a request as the upstream received it.
type echoed struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"` // with the query
	Headers map[string]string `json:"headers"`
}

// serveEchoed does not use a ServeMux, because that would redirect a path such as //a instead of showing it.
func serveEchoed(w http.ResponseWriter, r *http.Request) {
	if serveApplication(w, r) {
		return
	}
	seen := echoed{Method: r.Method, Path: r.RequestURI, Headers: map[string]string{"host": r.Host}}
	for name, values := range r.Header {
		seen.Headers[strings.ToLower(name)] = strings.Join(values, ", ") // lower case, as HTTP/2 and Envoy write them
	}
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false) // for people who read it
	out.SetIndent("", "  ")
	_ = out.Encode(seen) // an error means that the client is gone
}
