package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/extauthz/extauthz/internal/service"
)

const echoUsage = `extauthz echo is an upstream for trying things out: it answers every request with 200 and, as JSON, what has reached
it (method, path and headers), and /healthz with 200. It speaks HTTP/1.1 and HTTP/2 without TLS.

It listens on ECHO_ADDRESS, 127.0.0.1:8000 by default; in a container set it to 0.0.0.0:8000.
With STRICT_ENVIRONMENT=true a misspelt variable stops its start.

Example:
  ECHO_ADDRESS=127.0.0.1:8000 extauthz echo
`

const (
	echoAddress = "127.0.0.1:8000"
	// echoDrain is how long requests in flight may take after SIGTERM; each of them is answered at once.
	echoDrain = 5 * time.Second
)

// echo runs the subcommand of this name.
func echo(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if args[0] == "--help" || args[0] == "-h" {
			fmt.Fprint(stdout, echoUsage)
			return exitOK
		}
		fmt.Fprintf(stderr, "extauthz: echo takes no arguments, not %q: %s says where it listens\n", args[0], service.EchoVariable)
		return exitNoStart
	}
	if _, _, err := service.ReadSettings(); err != nil { // for STRICT_ENVIRONMENT
		fmt.Fprintf(stderr, "extauthz: the environment has mistakes:\n%s\n", err)
		return exitNoStart
	}
	listener, err := listenEcho(cmp.Or(os.Getenv(service.EchoVariable), echoAddress))
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: echo: %v\n", err)
		return exitNoStart
	}
	ctx, stop := untilInterrupted()
	defer stop()
	fmt.Fprintf(stderr, "extauthz: echo listens on %s\n", listener.Addr())
	if err := serveEcho(ctx, listener); err != nil {
		fmt.Fprintf(stderr, "extauthz: echo: %v\n", err)
		return exitFailed
	}
	return exitOK
}

func listenEcho(address string) (net.Listener, error) {
	host, text, err := net.SplitHostPort(address)
	port, portErr := strconv.ParseUint(text, 10, 16)
	if err != nil || portErr != nil {
		return nil, fmt.Errorf("%s=%q: want host:port, such as %s", service.EchoVariable, address, echoAddress)
	}
	return service.TCPAddress{HostSetting: service.EchoVariable, Host: host, PortSetting: service.EchoVariable, Port: uint16(port)}.Listen()
}

// serveEcho answers until ctx is done, lets requests in flight finish, and returns nil then.
func serveEcho(ctx context.Context, listener net.Listener) error {
	server := service.NewHTTPServer(http.HandlerFunc(serveEchoed))
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // as Envoy speaks it with a cluster of http2_protocol_options
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return service.WrapServe("HTTP", server.Serve(listener)) })
	group.Go(func() error {
		<-groupCtx.Done()
		drained, cancel := context.WithTimeout(context.Background(), echoDrain)
		defer cancel()
		return server.Shutdown(drained)
	})
	return group.Wait()
}

// echoed is what an upstream has seen of a request.
type echoed struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"` // with the query
	Headers map[string]string `json:"headers"`
}

// serveEchoed is no ServeMux, which would redirect a path such as //a that an upstream is to show.
func serveEchoed(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		fmt.Fprintln(w, "OK")
		return
	}
	seen := echoed{Method: r.Method, Path: r.RequestURI, Headers: map[string]string{"host": r.Host}}
	for name, values := range r.Header {
		seen.Headers[strings.ToLower(name)] = strings.Join(values, ", ") // lower case, as HTTP/2 and Envoy write them
	}
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false) // it is for reading
	out.SetIndent("", "  ")
	_ = out.Encode(seen) // a client that has gone wants no answer
}
