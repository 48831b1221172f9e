package auth_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
)

// mostTogether is the size of the largest message that a peer sends, so that calls fit into one frame each, and all of
// them into the window of the connection.
const mostTogether = 16<<10 - prefix

// prefix is the length of what precedes a message.
const prefix = 5

// peer is a client whose calls arrive together, in one write. It is for one goroutine.
type peer struct {
	*http2.Framer // It writes to out.

	conn  net.Conn
	out   bytes.Buffer
	block bytes.Buffer
	hpack *hpack.Encoder
	next  uint32 // the next stream
}

// answered is the answer to a call.
type answered struct {
	status  string
	message []byte // nil for none
}

// connect returns a peer of a server, until the end of the test.
func connect(t testing.TB, address string) *peer {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{conn: conn, next: 1}
	p.Framer = http2.NewFramer(&p.out, conn)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.hpack = hpack.NewEncoder(&p.block)
	_, _ = io.WriteString(&p.out, http2.ClientPreface)
	if err := p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	return p
}

// call sends calls in one write, and returns their answers.
func (p *peer) call(t testing.TB, messages ...[]byte) []answered {
	t.Helper()
	answers, streams := make([]answered, len(messages)), make(map[uint32]*answered)
	for i, message := range messages {
		p.block.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: auth.Method},
			{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"},
		} {
			_ = p.hpack.WriteField(f) // to memory
		}
		id := p.next
		p.next, streams[id] = id+2, &answers[i]
		framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true})
		if err == nil {
			err = p.WriteData(id, true, framed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = p.conn.SetDeadline(time.Now().Add(time.Minute)) // a read then shows an error
	if _, err := p.out.WriteTo(p.conn); err != nil {
		t.Fatal(err)
	}
	for len(streams) > 0 {
		p.receive(t, streams)
	}
	return answers
}

// receive reads a frame. A stream that it ends is no longer in streams.
func (p *peer) receive(t testing.TB, streams map[uint32]*answered) {
	t.Helper()
	frame, err := p.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			err = p.WriteSettingsAck()
		}
	case *http2.DataFrame:
		a := streams[f.StreamID]
		a.message = append(a.message, f.Data()...)
		if len(f.Data()) > 0 {
			err = p.WriteWindowUpdate(0, uint32(len(f.Data())))
		}
	case *http2.MetaHeadersFrame:
		if !f.StreamEnded() {
			return
		}
		a := streams[f.StreamID]
		for _, h := range f.Fields {
			if h.Name == "grpc-status" {
				a.status = h.Value
			}
		}
		if len(a.message) > 0 {
			a.message = a.message[prefix:]
		}
		delete(streams, f.StreamID)
	case *http2.RSTStreamFrame, *http2.GoAwayFrame:
		t.Fatalf("got %v", f)
	}
	if err != nil {
		t.Fatal(err)
	}
}
