package service

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/wire"
	"github.com/extauthz/extauthz/test/testenv"
)

// unusual is a request that no Envoy sends, or sends seldom.
type unusual struct {
	name string
	// headers changes those of a usual request for a decision. nil: they stay.
	headers func(h *requestHeaders)
	// body is the content of its DATA frames, the last of which ends the request. nil: one frame with a usual message.
	body [][]byte
	// send sends other frames than these.
	send func(p *rawClient)
	// want is the answer of both transports. If they differ, it is that of native, grpcGo is that of grpc-go, and row is
	// the row of docs/reference/settings.md that states the difference.
	want, grpcGo, row string
}

const (
	allowed      = "status 0"
	resetBroken  = "RST_STREAM PROTOCOL_ERROR"
	refusedType  = "HTTP 415"
	refusedPost  = "HTTP 405"
	unknownCall  = "status 12"
	brokenCall   = "status 13"
	brokenHeader = "HTTP 400, status 13"
)

// TestTransportsAgree sends unusual requests to both transports of the service, and compares the answers. After each,
// a usual request on the same connection is answered, unless the connection had to end.
func TestTransportsAgree(t *testing.T) {
	t.Parallel()
	rules := testenv.RulesRootWith(t, "domain: shop\ndescriptors: [{key: user}]\n")
	addresses := make(map[string]string)
	for _, transport := range []string{"grpc-go", nativeTransport} {
		addresses[transport], _, _, _ = start(t, configured(func(s *settings.Settings) {
			s.Rules.Root = rules
			s.Listeners.Transport = transport
		}))
	}
	requests := slices.Concat(unusualHeaders(), unusualFields(), unusualMessages(), unusualMethods(), unusualFrames())
	rows := differences(t)
	for _, u := range requests {
		if _, known := rows[u.row]; (u.grpcGo == "") != (u.row == "") || u.row != "" && !known {
			t.Errorf("%s: docs/reference/settings.md has no row %q", u.name, u.row)
		}
		rows[u.row] = true
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			for transport, address := range addresses {
				want := u.want
				if transport != nativeTransport && u.grpcGo != "" {
					want = u.grpcGo
				}
				if got := u.ask(t, address); got != want {
					t.Errorf("%s: got %q, want %q", transport, got, want)
				}
			}
		})
	}
	for row, used := range rows {
		if !used {
			t.Errorf("docs/reference/settings.md: no request has the row %q", row)
		}
	}
}

// differences returns the rows of docs/reference/settings.md with requests that the transports answer differently.
func differences(t *testing.T) map[string]bool {
	t.Helper()
	rows := make(map[string]bool)
	_, section, _ := strings.Cut(testenv.RepoFile(t, "docs/reference/settings.md"), "\n## Two servers of the gRPC port\n")
	_, table, _ := strings.Cut(section, "\n|---|---|---|---|\n")
	for line := range strings.Lines(table) {
		if row, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			rows[row] = false
		}
	}
	return rows
}

// ask sends the request on a connection of its own, and returns the answer.
func (u *unusual) ask(t *testing.T, address string) string {
	t.Helper()
	p := newRawClient(t, address)
	switch {
	case u.send != nil:
		u.send(p)
	default:
		h := usualHeaders(rls.Method)
		if u.headers != nil {
			u.headers(h)
		}
		body := u.body
		if body == nil {
			body = [][]byte{framed(0, usualMessage)}
		}
		p.headers(1, h, false)
		for i, b := range body {
			p.data(1, i == len(body)-1, b)
		}
	}
	got := p.answer(1)
	if strings.HasPrefix(got, "GOAWAY") || got == "closed" {
		return got
	}
	p.headers(101, usualHeaders(rls.Method), false)
	p.data(101, true, framed(0, usualMessage))
	if next := p.answer(101); next != allowed {
		t.Errorf("the next request: got %q, want %q", next, allowed)
	}
	return got
}

// requestHeaders are the header fields of a request.
type requestHeaders struct{ fields []hpack.HeaderField }

func usualHeaders(path string) *requestHeaders {
	h := new(requestHeaders)
	h.add(":method", "POST")
	h.add(":scheme", "http")
	h.add(":path", path)
	h.add(":authority", "test")
	h.add("content-type", "application/grpc")
	h.add("te", "trailers")
	return h
}

func (h *requestHeaders) add(name, value string) {
	h.fields = append(h.fields, hpack.HeaderField{Name: name, Value: value})
}

func (h *requestHeaders) remove(name string) {
	h.fields = slices.DeleteFunc(h.fields, func(f hpack.HeaderField) bool { return f.Name == name })
}

// set replaces a field, in its place.
func (h *requestHeaders) set(name, value string) {
	for i := range h.fields {
		if h.fields[i].Name == name {
			h.fields[i].Value = value
		}
	}
}

// with returns a change that adds fields, pairs of name and value.
func with(pairs ...string) func(*requestHeaders) {
	return func(h *requestHeaders) {
		for pair := range slices.Chunk(pairs, 2) {
			h.add(pair[0], pair[1])
		}
	}
}

// replaced returns a change that replaces a field.
func replaced(name, value string) func(*requestHeaders) {
	return func(h *requestHeaders) { h.set(name, value) }
}

// without returns a change that removes a field, and adds others.
func without(name string, pairs ...string) func(*requestHeaders) {
	return func(h *requestHeaders) {
		h.remove(name)
		with(pairs...)(h)
	}
}

// usualMessage is a request for a decision, which is allowed.
var usualMessage = func() []byte {
	const domainField, descriptorsField = 1<<3 | wire.Bytes, 2<<3 | wire.Bytes
	const entriesField, keyField, valueField = 1<<3 | wire.Bytes, 1<<3 | wire.Bytes, 2<<3 | wire.Bytes
	entry := wire.AppendText(wire.AppendText(nil, keyField, "user"), valueField, "ann")
	descriptor := wire.AppendText(nil, entriesField, string(entry))
	return wire.AppendText(wire.AppendText(nil, domainField, "shop"), descriptorsField, string(descriptor))
}()

// framed returns a message with the prefix of gRPC.
func framed(flag byte, message []byte) []byte {
	n := len(message)
	return append([]byte{flag, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
}

// rawClient is a client that sends any frames.
type rawClient struct {
	*http2.Framer
	conn  net.Conn
	block bytes.Buffer
	hpack *hpack.Encoder
}

func newRawClient(t *testing.T, address string) *rawClient {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &rawClient{conn: conn, Framer: http2.NewFramer(conn, conn)}
	p.wait()
	p.ReadMetaHeaders, p.AllowIllegalWrites = hpack.NewDecoder(4096, nil), true
	p.hpack = hpack.NewEncoder(&p.block)
	_, prefaced := io.WriteString(conn, http2.ClientPreface)
	// Nothing waits for windows: they are as large as can be.
	if err := errors.Join(prefaced, p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}),
		p.WriteWindowUpdate(0, 1<<30)); err != nil {
		t.Fatal(err)
	}
	return p
}

// wait gives the service time for its next answer. A client only waits that long if the test fails.
func (p *rawClient) wait() {
	const patience = 20 * time.Second
	_ = p.conn.SetDeadline(time.Now().Add(patience))
}

// encode returns a header block.
func (p *rawClient) encode(h *requestHeaders) []byte {
	p.block.Reset()
	for _, f := range h.fields {
		_ = p.hpack.WriteField(f) // to memory
	}
	return bytes.Clone(p.block.Bytes())
}

// The errors of writes show in the answer: the service has closed the connection.
func (p *rawClient) headers(id uint32, h *requestHeaders, end bool) {
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(h), EndHeaders: true, EndStream: end})
}

func (p *rawClient) data(id uint32, end bool, content []byte) {
	const largest = 16384
	for len(content) > largest {
		_ = p.WriteData(id, false, content[:largest])
		content = content[largest:]
	}
	_ = p.WriteData(id, end, content)
}

// awaitRead returns when the service has read all that was sent.
func (p *rawClient) awaitRead() {
	p.wait()
	_ = p.WritePing(false, [8]byte{})
	for {
		f, err := p.ReadFrame()
		if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() || err != nil {
			return // an error shows in the next answer
		}
	}
}

// answer reads frames until a stream or the connection ends, and returns what the client of gRPC sees of it.
func (p *rawClient) answer(id uint32) string {
	p.wait()
	httpStatus := ""
	for {
		f, err := p.ReadFrame()
		if broken, ok := errors.AsType[net.Error](err); ok && broken.Timeout() {
			return "no answer"
		} else if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return "GOAWAY " + f.ErrCode.String()
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "RST_STREAM " + f.ErrCode.String()
			}
		case *http2.DataFrame:
			if f.StreamID == id && f.StreamEnded() {
				return httpStatus
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = p.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = p.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID != id {
				continue
			}
			if status := f.PseudoValue("status"); status != "" && status != "200" {
				httpStatus = "HTTP " + status
			}
			if f.StreamEnded() {
				return described(httpStatus, f.RegularFields())
			}
		}
	}
}

// described returns the answer with these trailers.
func described(httpStatus string, trailers []hpack.HeaderField) string {
	for _, h := range trailers {
		switch {
		case h.Name != "grpc-status":
		case httpStatus == "":
			return "status " + h.Value
		case httpStatus == "HTTP 400": // clients of gRPC read the other ones alone
			return fmt.Sprintf("%s, status %s", httpStatus, h.Value)
		}
	}
	return httpStatus
}

// healthRequest returns a request of grpc.health.v1 for a service of at most 100 bytes.
func healthRequest(service string) []byte {
	return framed(0, wire.AppendText(nil, 1<<3|wire.Bytes, service))
}

// call returns how to send a call of another method.
func call(method string, message []byte) func(p *rawClient) {
	return func(p *rawClient) {
		p.headers(1, usualHeaders(method), false)
		p.data(1, true, message)
	}
}

func unusualMethods() []unusual {
	return []unusual{
		{name: "Health/Check", send: call(grpc_health_v1.Health_Check_FullMethodName, framed(0, nil)), want: allowed},
		{name: "Health/Check of a known service", want: allowed,
			send: call(grpc_health_v1.Health_Check_FullMethodName, healthRequest("ratelimit"))},
		{name: "Health/Check of an unknown service", want: "status 5",
			send: call(grpc_health_v1.Health_Check_FullMethodName, healthRequest("none"))},
		{name: "Health/Check with a malformed message", want: brokenCall,
			send: call(grpc_health_v1.Health_Check_FullMethodName, framed(0, []byte{0xff}))},
		{name: "Health/List", send: call(grpc_health_v1.Health_List_FullMethodName, framed(0, nil)), want: allowed},
		{name: "Health/List with a malformed message", want: brokenCall,
			send: call(grpc_health_v1.Health_List_FullMethodName, framed(0, []byte{0xff}))},
		{name: "Health/Watch with a malformed message", want: brokenCall,
			send: call(grpc_health_v1.Health_Watch_FullMethodName, framed(0, []byte{0xff}))},
		{name: "reflection", want: unknownCall,
			send: call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", framed(0, nil))},
		{name: "an unknown method", headers: replaced(":path", rls.Method+"s"), want: unknownCall},
		{name: "a method in lower case", headers: replaced(":path", strings.ToLower(rls.Method)), want: unknownCall},
		{name: "two slashes before the method", headers: replaced(":path", "/"+rls.Method), want: unknownCall},
		{name: "a method without a slash", headers: replaced(":path", rls.Method[1:]), want: unknownCall},
		{name: "a method with a query", headers: replaced(":path", rls.Method+"?a=b"), want: unknownCall},
		{name: "a method with an escape", headers: replaced(":path", strings.Replace(rls.Method, "S", "%53", 1)),
			want: unknownCall},
		{name: "the path *", headers: replaced(":path", "*"), want: unknownCall},
		{name: "an empty path", headers: replaced(":path", ""), want: resetBroken, grpcGo: unknownCall, row: pseudoRow},
		{name: "no path", headers: without(":path"), want: resetBroken, grpcGo: unknownCall, row: pseudoRow},
	}
}
