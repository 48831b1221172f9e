package loadgen

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// server is a listener whose connections are served by a script of the test.
type server struct {
	t       testing.TB
	address string

	mu     sync.Mutex
	peers  int
	blocks map[string][]string // by :path
}

// blocksOf returns the header blocks of the requests so far.
func (s *server) blocksOf(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.blocks[path]...)
}

// peer is the server's side of a connection.
type peer struct {
	*http2.Framer
	t      testing.TB
	conn   net.Conn
	in     *bufio.Reader
	server *server
	// number counts the connections, from 1.
	number int
	read   *reader
}

// serve accepts connections until the test ends, and calls script for each, after the preface.
func serve(t testing.TB, script func(*peer)) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, address: listener.Addr().String(), blocks: map[string][]string{}}
	var scripts sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		scripts.Wait()
	})
	scripts.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.peers++
			p := &peer{t: t, conn: conn, server: s, number: s.peers, read: newReader()}
			s.mu.Unlock()
			scripts.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if _, err := io.ReadFull(in, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				p.in, p.Framer = in, http2.NewFramer(conn, in)
				script(p)
			})
		}
	})
	return s
}

// next returns the number of the next request after its END_STREAM, 0 when the client has closed the connection.
func (p *peer) next() uint32 {
	for {
		frame, err := p.ReadFrame()
		if err != nil {
			return 0
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = p.WriteSettingsAck() // the client may have gone
			}
		case *http2.HeadersFrame:
			block := p.read.read(p.t, bytes.Clone(f.HeaderBlockFragment()))
			p.server.mu.Lock()
			path := p.read.fields[":path"]
			p.server.blocks[path] = append(p.server.blocks[path], block)
			p.server.mu.Unlock()
		case *http2.DataFrame:
			if f.StreamEnded() {
				return f.StreamID
			}
		}
	}
}

// answerAll sends settings and then one answer to each request.
func (p *peer) answerAll(answer func(p *peer, id uint32), settings ...http2.Setting) {
	_ = p.WriteSettings(settings...) // the client may have gone, here and below
	for id := p.next(); id != 0; id = p.next() {
		answer(p, id)
	}
}

// headers writes a header block without a table, so that every block stands for itself.
func (p *peer) headers(id uint32, ends bool, fields ...string) {
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields...), EndHeaders: true,
		EndStream: ends})
}

func block(fields ...string) []byte {
	var b bytes.Buffer
	for i := 0; i < len(fields); i += 2 {
		b.WriteByte(0)
		for _, text := range fields[i : i+2] {
			b.WriteByte(byte(len(text)))
			b.WriteString(text)
		}
	}
	return b.Bytes()
}

// Answers of a server. okMessage is a RateLimitResponse with the overall code OK.
var okMessage = []byte{0, 0, 0, 0, 2, 8, 1}

func allowed(p *peer, id uint32) {
	p.headers(id, false, ":status", "200", "content-type", "application/grpc")
	_ = p.WriteData(id, false, okMessage)
	p.headers(id, true, "grpc-status", "0")
}

// denied is a refusal by an error of gRPC, without a message.
func denied(p *peer, id uint32) {
	p.headers(id, true, ":status", "200", "grpc-status", "14", "grpc-message", "closed")
}
