package h2unary_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FuzzCuts sends bytes of a client in one piece and in many. The server must answer the same.
func FuzzCuts(f *testing.F) {
	for _, c := range conversations(f) {
		f.Add(c, uint64(len(c)))
	}
	s := startOn(f, newPipes(), nil, nil)
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		if input = complete(input); len(input) > 8<<10 || overtakes(input) {
			return // some frames overtake an answer or not, which depends on the cuts
		}
		whole := converse(t, s, input, len(input))
		for _, most := range []int{1, 1 + int(seed%50)} {
			if d := cmp.Diff(whole, converse(t, s, input, -most)); d != "" {
				t.Errorf("in pieces of up to %d bytes:\n%s", most, d)
			}
		}
	})
}

// TestCuts cuts each conversation at each byte.
func TestCuts(t *testing.T) {
	t.Parallel()
	s := startOn(t, newPipes(), nil, nil)
	for i, input := range conversations(t) {
		whole := converse(t, s, input, len(input))
		if len(whole) < 2 {
			t.Errorf("conversation %d: only %q", i, whole)
		}
		for at := 1; at < len(input); at++ {
			if d := cmp.Diff(whole, converse(t, s, input, at)); d != "" {
				t.Fatalf("conversation %d, cut at %d:\n%s", i, at, d)
			}
		}
	}
}

// complete appends what the last frame lacks.
func complete(input []byte) []byte {
	at := 0
	for at < len(input) {
		var head [9]byte
		copy(head[:], input[at:])
		size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if size > 16384 {
			size = 0 // the server refuses it
		}
		at += len(head) + size
	}
	return append(bytes.Clone(input), make([]byte, at-len(input))...)
}

// overtakes reports whether the effect of a frame depends on whether an answer was sent before it: RST_STREAM,
// WINDOW_UPDATE with a wrong increment, SETTINGS of the initial window.
func overtakes(input []byte) bool {
	framer := http2.NewFramer(nil, bytes.NewReader(input))
	framer.AllowIllegalReads = true
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			// x/net stops at a wrong WINDOW_UPDATE, so the rest may have any frame.
			return !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			return true
		case *http2.WindowUpdateFrame:
			if f.Increment > 1<<30 {
				return true
			}
		case *http2.SettingsFrame:
			if _, ok := f.Value(http2.SettingInitialWindowSize); ok {
				return true
			}
		}
	}
}

// conversations are the bytes of clients, after the preface.
func conversations(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, write := range []func(p *peer){
		func(p *peer) { // requests, also padded, in pieces, with trailers
			for i, message := range []string{"a", "", strings.Repeat("x", 300)} {
				_ = p.request(uint32(2*i+1), echoMethod, message)
			}
			_ = p.WritePing(false, [8]byte{1})
			_ = p.headers(7, failMethod, false)
			_ = p.WriteData(7, false, prefixed("why")[:3])
			_ = p.WriteDataPadded(7, true, prefixed("why")[3:], make([]byte, 20))
			_ = p.headers(9, echoMethod, false)
			_ = p.WriteData(9, false, prefixed("trailed"))
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 9, EndHeaders: true, EndStream: true})
			_ = p.headers(11, "/unknown", true)
		},
		func(p *peer) { // small windows
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
			_ = p.request(1, echoMethod, "window")
			_ = p.request(3, echoMethod, "window")
			_ = p.WriteWindowUpdate(1, 1)
			_ = p.WriteWindowUpdate(3, 100)
			_ = p.WriteWindowUpdate(1, 100)
		},
		func(p *peer) { // wrong messages
			for i, data := range []string{"", "\x00", "\x00\x00\x00\x00\x02x", "\x00\x00\x00\x00\x01xy", "\x01\x00\x00\x00\x01x",
				"\x02\x00\x00\x00\x01x", "\x00\xff\xff\xff\xff"} {
				id := uint32(2*i + 1)
				_ = p.headers(id, echoMethod, false)
				_ = p.WriteData(id, true, []byte(data))
			}
			_ = p.headers(15, echoMethod, true)
			_ = p.headers(17, echoMethod, true, hpack.HeaderField{Name: "grpc-timeout", Value: "1x"})
		},
		func(p *peer) { // an end by a mistake
			_ = p.request(1, echoMethod, "x")
			_ = p.WriteRawFrame(http2.FramePing, 0, 0, []byte{1})
			_ = p.request(3, echoMethod, "x")
		},
	} {
		var b bytes.Buffer
		p := &peer{TB: t, Framer: http2.NewFramer(&b, nil)}
		p.AllowIllegalWrites = true
		p.hpack = hpack.NewEncoder(&p.block)
		_ = p.WriteSettings()
		write(p)
		all = append(all, b.Bytes())
	}
	return all
}

// converse sends bytes after the preface, cut at a byte or, if that is negative, in pieces of at most that length. It
// returns what the server has answered on each stream. A last PING shows that all was answered.
func converse(t testing.TB, s *server, input []byte, cut int) []string {
	t.Helper()
	conn := s.Listener.Listener.(*pipeListener).dial()
	defer func() { _ = conn.Close() }()
	go func() { // ends with the connection
		_, _ = io.WriteString(conn, http2.ClientPreface)
		r := rand.New(rand.NewPCG(uint64(len(input)), 0))
		for at := 0; at < len(input); {
			n := len(input) - at
			if cut < 0 {
				n = min(1+r.IntN(-cut), n)
			} else if at < cut {
				n = cut - at
			}
			if _, err := conn.Write(input[at : at+n]); err != nil {
				return
			}
			at += n
		}
		_, _ = conn.Write(append([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0}, lastPing...))
	}()
	return transcript(t, conn)
}

const lastPing = "the last"

// transcript reads the frames of a server until the answer to lastPing, or the end.
func transcript(t testing.TB, conn net.Conn) []string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute)) // only if the test fails
	framer := http2.NewFramer(io.Discard, conn)
	decoder := hpack.NewDecoder(4096, nil)
	streams := make(map[uint32]string)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			if connection, ok := errors.AsType[http2.ConnectionError](err); ok {
				t.Errorf("the server broke the protocol: %v", connection)
			}
			break
		}
		said := ""
		switch f := f.(type) {
		case *http2.HeadersFrame:
			fields, err := decoder.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				t.Errorf("the server sent a wrong header block: %v", err)
			}
			said = fmt.Sprintf("\nheaders %v", fields)
		case *http2.DataFrame:
			said = hex.EncodeToString(f.Data())
		case *http2.RSTStreamFrame:
			said = "\nreset " + f.ErrCode.String()
		case *http2.GoAwayFrame:
			said = fmt.Sprintf("\ngoaway %v %s", f.ErrCode, f.DebugData())
		case *http2.PingFrame:
			said = fmt.Sprintf("\nping %q", f.Data)
		}
		streams[f.Header().StreamID] += said
		if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().StreamID != 0 {
			streams[f.Header().StreamID] += "\nend"
		}
		if ping, ok := f.(*http2.PingFrame); ok && string(ping.Data[:]) == lastPing {
			break
		}
	}
	var all []string
	for id, said := range streams {
		all = append(all, fmt.Sprintf("%03d %s", id, said))
	}
	slices.Sort(all)
	return all
}

// TestCutWalk does so for conversations with random mistakes.
func TestCutWalk(t *testing.T) {
	t.Parallel()
	s := startOn(t, newPipes(), nil, nil)
	all, seed := conversations(t), rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		input := bytes.Clone(all[r.IntN(len(all))])
		for range 1 + r.IntN(4) {
			input[r.IntN(len(input))] = byte(r.IntN(256))
		}
		if input = complete(input); len(input) > 8<<10 || overtakes(input) {
			continue
		}
		most := 1 + r.IntN(40)
		if d := cmp.Diff(converse(t, s, input, len(input)), converse(t, s, input, -most)); d != "" {
			t.Fatalf("seed %d: %x in pieces of up to %d bytes:\n%s", seed, input, most, d)
		}
	}
}
