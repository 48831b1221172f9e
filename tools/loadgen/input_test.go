package loadgen

import (
	"bytes"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

// cutConn is a connection whose reads return only a few bytes.
type cutConn struct {
	net.Conn
	most int
}

func (c cutConn) Read(b []byte) (int, error) { return c.Conn.Read(b[:min(len(b), c.most)]) }

// TestCuts checks that answers are the same however their bytes are cut.
func TestCuts(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2, 7, 10, 100} {
		answers := []func(*peer, uint32){allowed, inBytes, padded, continued, busy, twice, denied}
		next := 0
		s := serve(t, func(p *peer) {
			p.answerAll(func(p *peer, id uint32) {
				answers[next%len(answers)](p, id)
				next++
			})
		})
		p := plan(t, s.address)
		p.Connections, p.InFlight, p.Count = 1, 4, 70
		m := newMeasurement(p)
		conn, err := p.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.first = []*session{newSession(m.lanes[0], cutConn{conn, most})}
		m.run(t.Context())
		r := m.result()
		if r.Allowed != 50 || r.Errors != 20 || r.Reconnects != 0 {
			t.Errorf("%d bytes a read: %+v", most, r)
		}
	}
}

// FuzzFrames checks that frames are cut as x/net cuts them, and that those read in place are read as x/net reads them.
func FuzzFrames(f *testing.F) {
	var all bytes.Buffer
	w := http2.NewFramer(&all, nil)
	w.AllowIllegalWrites = true
	seed := func() {
		f.Add(bytes.Clone(all.Bytes()))
		all.Reset()
	}
	_ = w.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}) // to a buffer, here and below
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, PadLength: 3,
		Priority: http2.PriorityParam{StreamDep: 3, Weight: 4}})
	_ = w.WriteContinuation(1, true, []byte{0x88})
	_ = w.WriteDataPadded(1, true, []byte("data"), make([]byte, 9))
	seed()
	_ = w.WriteDataPadded(1, true, nil, make([]byte, 200))
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}})
	_ = w.WritePing(true, [8]byte{})
	seed()
	_ = w.WriteGoAway(7, http2.ErrCodeNo, []byte("bye"))
	_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
	_ = w.WriteWindowUpdate(0, 1)
	_ = w.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 1})
	seed()
	for _, kind := range []http2.FrameType{0, 1, 3, 4, 5, 6, 7, 8, 9} {
		_ = w.WriteRawFrame(kind, 0xff, 0, make([]byte, 8))
		seed()
		_ = w.WriteRawFrame(kind, 0xff, 1, make([]byte, 8))
		seed()
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := input{buffer: bytes.Clone(sent), to: len(sent)}
		theirs := http2.NewFramer(nil, bytes.NewReader(sent))
		theirs.SetMaxReadFrameSize(maxFrame)
		for raw := in.next(); raw != nil; raw = in.next() {
			want, err := theirs.ReadFrame()
			got, ok := readFrame(raw)
			switch {
			case err != nil:
				return
			case int(want.Header().Length) != len(raw)-frameHeader:
				t.Fatalf("%v: %d bytes", want, len(raw))
			case !ok:
				continue
			}
			h, payload := want.Header(), []byte(nil)
			switch want := want.(type) {
			case *http2.HeadersFrame:
				payload = want.HeaderBlockFragment()
			case *http2.DataFrame:
				payload = want.Data()
			}
			if diff := cmp.Diff([]any{h.Type, h.Flags, h.StreamID, string(payload)},
				[]any{got.kind, got.flags, got.stream, string(got.payload)}); diff != "" {
				t.Fatalf("-want +got\n%s", diff)
			}
		}
	})
}

// TestMeanings checks that a block is decoded again after another one has changed the table.
func TestMeanings(t *testing.T) {
	t.Parallel()
	m := newMeanings()
	added := func(name, value string) []byte { // literal with incremental indexing
		return append([]byte{0x40}, block(name, value)[1:]...)
	}
	for _, c := range []struct {
		block []byte
		want  meaning
	}{
		{added("grpc-status", "0"), meaning{"", int(codes.OK), ""}},
		{[]byte{0xbe}, meaning{"", int(codes.OK), ""}},
		{[]byte{0xbe}, meaning{"", int(codes.OK), ""}},
		{added("grpc-status", "14"), meaning{"", int(codes.Unavailable), ""}},
		{[]byte{0xbe}, meaning{"", int(codes.Unavailable), ""}},
		{[]byte{0xbf}, meaning{"", int(codes.OK), ""}},
		{[]byte{0x88}, meaning{"", noStatus, ""}},
		{[]byte{0x8d}, meaning{"404", noStatus, ""}},
		{block("grpc-message", "closed"), meaning{"", noStatus, "closed"}},
		{[]byte{0xbf}, meaning{"", int(codes.OK), ""}},
	} {
		if got, err := m.read(c.block); err != nil || got != c.want {
			t.Errorf("%x: %+v, %v, want %+v", c.block, got, err, c.want)
		}
	}
	if _, err := m.read([]byte{0xc0}); err == nil {
		t.Error("no error for an index beyond the table")
	}
}
