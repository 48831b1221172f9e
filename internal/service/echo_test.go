package service

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEcho checks that each request is returned as it was received, over HTTP/1.1 and HTTP/2, until the context ends.
func TestEcho(t *testing.T) {
	t.Parallel()
	listener, err := listenEcho("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveEcho(ctx, listener) }()
	base := "http://" + listener.Addr().String()

	for _, version := range []int{1, 2} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(version == 1)
		transport.Protocols.SetUnencryptedHTTP2(version == 2)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"//a/../b?c=<d>", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "shop.example"
		req.Header = http.Header{"X-Auth-Owner": {"demo"}, "X-Two": {"1", "2"}, "User-Agent": {"test"},
			"Accept-Encoding": {"none"}}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var got echoed
		err = json.NewDecoder(res.Body).Decode(&got)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != version {
			t.Errorf("HTTP/%d: %s %s, %v", version, res.Proto, res.Status, err)
		}
		want := echoed{Method: "POST", Path: "//a/../b?c=<d>", Headers: map[string]string{
			"host": "shop.example", "x-auth-owner": "demo", "x-two": "1, 2", "user-agent": "test", "accept-encoding": "none",
			"content-length": "4",
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("HTTP/%d (-want +got):\n%s", version, diff)
		}
		transport.CloseIdleConnections()
	}
	if code, body := get(t, base+"/healthz"); code != http.StatusOK || body != "OK\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v, want nil", err)
	}
}

// TestEchoApplication sends what the pages of the cookbook send to their application.
func TestEchoApplication(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(serveEchoed))
	t.Cleanup(upstream.Close)
	const form, chat = "application/x-www-form-urlencoded", "/v1/chat/completions"
	for _, c := range []struct {
		path, contentType, body string
		code                    int
		want, failed            string
	}{
		{"/login", form, "user=alice&password=right", 200, `"path": "/login"`, ""},
		{"/login", form, "user=alice&password=wrong", 401, "The password is wrong.", "1"},
		{"/login", form, "", 401, "The password is wrong.", "1"},
		{chat, form, `{"model": "small", "max_tokens": 400}`, 200, `"usage":{"total_tokens":400}}`, ""},
		{chat, form, `{"max_tokens": 9, "stream": true, "stream_options": {"include_usage": true}}`, 200,
			"data: {\"choices\":[],\"usage\":{\"total_tokens\":9}}\n\ndata: [DONE]\n\n", ""},
		{chat, form, `{"stream": true}`, 200, "{\"choices\":[{\"delta\":{\"content\":\"Hello!\"}}]}\n\ndata: [DONE]\n\n", ""},
		{chat, form, `{`, 400, "this is not JSON", ""},
		{"/shop.Catalog/Search", "application/grpc", "", 200, "\x00\x00\x00\x00\x00", ""},
	} {
		res, err := http.Post(upstream.URL+c.path, c.contentType, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != c.code || !strings.Contains(string(body), c.want) ||
			res.Header.Get("X-Login-Failed") != c.failed {
			t.Errorf("%s %s: %d %v %q, %v; want %d %q", c.path, c.body, res.StatusCode, res.Header, body, err, c.code, c.want)
		}
	}
	if code, body := get(t, upstream.URL+"/login"); code != http.StatusOK || !strings.Contains(body, `"path": "/login"`) {
		t.Errorf("GET /login: %d %s", code, body)
	}
}

func TestEchoAddress(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := strconv.Itoa(busy.Addr().(*net.TCPAddr).Port)
	for address, want := range map[string]string{
		"8000":            `ECHO_ADDRESS="8000": want host:port, such as 127.0.0.1:8000`,
		"127.0.0.1:http2": `ECHO_ADDRESS="127.0.0.1:http2": want host:port, such as 127.0.0.1:8000`,
		"127.0.0.1:" + port: "port " + port + " of 127.0.0.1 is in use: stop what listens there, or set ECHO_ADDRESS to " +
			"another port",
		"192.0.2.1:" + port: "listen for ECHO_ADDRESS: its host is not an address of this machine (listen tcp 192.0.2.1:" +
			port,
		"no.such.invalid:80": "listen for ECHO_ADDRESS: its host is not an address or a name with an address",
	} {
		if err := Echo(t.Context(), address, io.Discard); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("ECHO_ADDRESS=%s: %v, want %s", address, err, want)
		}
	}
}
