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

// serveApplication reports whether it has answered a request: one for /healthz, for a chat model with the API of
// OpenAI, or a login that fails. A WebSocket is closed at once, and a call of gRPC gets an empty message.
func serveApplication(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.URL.Path == "/healthz":
		fmt.Fprintln(w, "OK")
	case r.URL.Path == "/v1/chat/completions":
		serveChat(w, r)
	case r.URL.Path == "/login" && r.Method == http.MethodPost && r.FormValue("password") != "right":
		w.Header().Set("X-Login-Failed", "1")
		http.Error(w, "The password is wrong.", http.StatusUnauthorized)
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = conn.Close() // an error means that the client is gone
		}
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write(make([]byte, 5)) // the frame of a message of length 0
		_ = http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	default:
		return false
	}
	return true
}

// serveChat answers as a chat model. max_tokens is what the answer costs. A stream reports that only if the request
// asks for it. The stream of the model "slow" does not end before the client gives up.
func serveChat(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Model         string `json:"model"`
		MaxTokens     int    `json:"max_tokens"`
		Stream        bool   `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&request); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, `{"error":{"message":"this is not JSON"}}`)
		return
	}
	usage := fmt.Sprintf(`"usage":{"total_tokens":%d}`, request.MaxTokens)
	if !request.Stream {
		fmt.Fprintln(w, `{"choices":[{"message":{"role":"assistant","content":"Hello!"}}],`+usage+`}`)
		return
	}
	events := []string{`{"choices":[{"delta":{"content":"Hello!"}}]}`}
	if request.StreamOptions.IncludeUsage {
		events = append(events, `{"choices":[],`+usage+`}`)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range append(events, "[DONE]") {
		fmt.Fprintf(w, "data: %s\n\n", event)
		_ = http.NewResponseController(w).Flush() // an error means that the client is gone
		if request.Model == "slow" {
			<-r.Context().Done()
			return
		}
	}
}
