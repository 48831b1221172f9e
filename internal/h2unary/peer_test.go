package h2unary_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a client that sends any frames.
type peer struct {
	testing.TB
	*http2.Framer
	conn  net.Conn
	block bytes.Buffer
	hpack *hpack.Encoder
}

// connect connects a peer, and makes the handshake with these settings.
func connect(t testing.TB, s *server, settings ...http2.Setting) *peer {
	t.Helper()
	p := greet(t, s, settings...)
	if err := p.WriteSettingsAck(); err != nil {
		t.Fatal(err)
	}
	return p
}

// greet makes the handshake, but does not acknowledge the settings of the server.
func greet(t testing.TB, s *server, settings ...http2.Setting) *peer {
	t.Helper()
	conn := s.dial(t)
	p := &peer{TB: t, conn: conn, Framer: http2.NewFramer(conn, conn)}
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.hpack = hpack.NewEncoder(&p.block)
	done := make(chan struct{})
	go func() { // a pipe has no buffer; ends with the connection
		defer close(done)
		_, _ = io.WriteString(conn, http2.ClientPreface)
		_ = p.WriteSettings(settings...)
	}()
	for {
		f := p.next()
		if ack, ok := f.(*http2.SettingsFrame); ok && ack.IsAck() {
			<-done
			return p
		}
	}
}

// dial connects to the server, and closes the connection with the test.
func (s *server) dial(t testing.TB) (conn net.Conn) {
	t.Helper()
	var err error
	if pipes, ok := s.Listener.Listener.(*pipeListener); ok {
		conn = pipes.dial()
	} else if conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// next reads a frame, which must come.
func (p *peer) next() http2.Frame {
	p.Helper()
	f, err := p.ReadFrame()
	if err != nil {
		p.Fatal(err)
	}
	return f
}

// headers begins a request.
func (p *peer) headers(id uint32, method string, end bool, more ...hpack.HeaderField) error {
	p.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		if err := p.hpack.WriteField(f); err != nil {
			return err
		}
	}
	return p.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: end,
	})
}

// request sends a whole request.
func (p *peer) request(id uint32, method, message string) error {
	return errors.Join(p.headers(id, method, false), p.WriteData(id, true, prefixed(message)))
}

// together returns a peer whose frames the other function sends in one write.
func (p *peer) together() (together *peer, flush func() error) {
	var out bytes.Buffer
	together = &peer{TB: p.TB, Framer: http2.NewFramer(&out, nil)}
	together.hpack = hpack.NewEncoder(&together.block)
	return together, func() error {
		_, err := out.WriteTo(p.conn)
		return err
	}
}

// prefixed returns a message with its prefix.
func prefixed(message string) []byte {
	n := len(message)
	return append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
}

// answer reads frames until a stream ends. It returns the message or the status, as a text.
func (p *peer) answer(id uint32) string {
	p.Helper()
	var data []byte
	for {
		switch f := p.next().(type) {
		case *http2.DataFrame:
			if f.StreamID == id {
				data = append(data, f.Data()...)
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "reset " + f.ErrCode.String()
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID != id || !f.StreamEnded() {
				continue
			}
			for _, h := range f.RegularFields() {
				if h.Name == "grpc-status" && h.Value != "0" {
					return "status " + h.Value
				}
			}
			return string(data[5:])
		case *http2.GoAwayFrame:
			return "GOAWAY " + f.ErrCode.String()
		}
	}
}

// goAway reads frames until GOAWAY, and then until the end. It returns "" if there is no GOAWAY.
func (p *peer) goAway() (text string) {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return text
		}
		if away, ok := f.(*http2.GoAwayFrame); ok {
			text = fmt.Sprintf("%v %s", away.ErrCode, away.DebugData())
		}
	}
}

// pipeListener accepts connections in memory, so that a test in a bubble of synctest can wait for hours.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}
