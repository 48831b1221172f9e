package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/test/testenv"
)

// startRawEnvoy starts an Envoy with the sample configuration and an application that answers with the request as
// Envoy sent it. Envoy calls the application over HTTP/1.1, regardless of the client's protocol. The application does
// not parse the request, because a library would refuse half of what clients can send.
func startRawEnvoy(t *testing.T, grpcPort int, edits ...edit) *proxy {
	t.Helper()
	edits = append(edits,
		instead("use_downstream_protocol_config: { http2_protocol_options: {} }",
			"explicit_http_config: { http_protocol_options: {} }"),
		// Envoy does not answer malformed requests: it closes the connection, by default after a second.
		instead("request_headers_timeout: 10s\n", `request_headers_timeout: 10s
                delayed_close_timeout: 0s
                http_protocol_options: { accept_http_10: true }
`))
	ports := testenv.Ports{8000: testenv.Port(t, rawApplication(t)), 8081: grpcPort}
	return startEnvoyWith(t, "envoy/envoy.yaml", ports, edits...)
}

// rawApplication answers each request with its head, byte for byte.
func rawApplication(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerHeads(conn) // ends with the connection
		}
	}()
	return l.Addr().String()
}

func answerHeads(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	var head strings.Builder
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		head.WriteString(line)
		if line == "\r\n" {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", head.Len(), head.String())
			head.Reset()
		}
	}
}

// rawAnswer is the answer to a raw client: the status, and the head of the request that the application received, or
// "" if it received none. The status is 0 if Envoy closes the connection without an answer.
type rawAnswer struct {
	status int
	head   string
}

// host returns the Host header that the application received.
func (a rawAnswer) host() string {
	for line := range strings.SplitSeq(a.head, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "host") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func newRawAnswer(status int, body string) rawAnswer {
	if status != http.StatusOK {
		body = ""
	}
	return rawAnswer{status, body}
}

// sendHTTP1 sends the lines of the head of a request unchanged, over HTTP/1.
func (p *proxy) sendHTTP1(t *testing.T, lines ...string) rawAnswer {
	t.Helper()
	conn := p.dial(t, "127.0.0.1")
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\nconnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return rawAnswer{}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return newRawAnswer(resp.StatusCode, string(body))
}

// sendHTTP2 sends a request over HTTP/2 with unchanged header fields, pairs of name and value. The caller adds :path
// and :authority. The method is GET, unless the first field is :method.
func (p *proxy) sendHTTP2(t *testing.T, fields ...string) rawAnswer {
	t.Helper()
	conn := p.dial(t, "127.0.0.1")
	defer func() { _ = conn.Close() }()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	if fields[0] != ":method" {
		fields = append([]string{":method", "GET"}, fields...)
	}
	fields = append([]string{":scheme", "http"}, fields...)
	for i := 0; i < len(fields); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	request := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}
	if err := framer.WriteHeaders(request); err != nil {
		t.Fatal(err)
	}
	status, body := 0, ""
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return newRawAnswer(status, body)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status, err = strconv.Atoi(f.PseudoValue("status"))
			if err != nil {
				t.Fatal(err)
			}
		case *http2.DataFrame:
			body += string(f.Data())
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return newRawAnswer(status, body)
		}
		if frame.Header().StreamID == 1 && frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return newRawAnswer(status, body)
		}
	}
}
