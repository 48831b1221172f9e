package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

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
