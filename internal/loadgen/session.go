package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxFrame is the default of HTTP/2 for both directions.
	maxFrame = 16_384
	// ownWindow is how much a server may send before a WINDOW_UPDATE, per stream and per connection. It is Envoy's.
	ownWindow     = 16 << 20
	defaultWindow = 65_535
	// maxAnswer and maxHeader bound what a server can make a session keep for one answer.
	maxAnswer = 1 << 20
	maxHeader = 64 << 10
)

// errLeft means that a session ended after the server's GOAWAY, with all its requests answered.
var errLeft = errors.New("the server sent GOAWAY")

// session is one HTTP/2 connection of a lane. The lock of the lane guards it.
type session struct {
	lane    *lane
	conn    net.Conn
	framer  *http2.Framer
	out     bytes.Buffer // frames to be written
	blocks  *blocks
	decoder *hpack.Decoder
	header  []byte   // the header block so far
	of      *request // the request that header is the answer to

	requests map[uint32]*request
	free     []*request // to be used again
	unsent   []*request // in out
	nextID   uint32

	// most is how many requests may be in flight, by the plan and the server.
	most int
	// window is how many bytes the server takes on the connection; streamWindow, on a new stream.
	window, streamWindow int64
	// received is how many bytes have come since the last WINDOW_UPDATE.
	received int
	settled  bool // the server's SETTINGS have arrived
	leaving  bool // the server has sent GOAWAY
	answered bool
}

// newSession writes what begins a connection, with the settings of Envoy 1.40.
func newSession(l *lane, conn net.Conn) *session {
	s := &session{
		lane: l, conn: conn, requests: map[uint32]*request{}, nextID: 1,
		most: l.most, window: defaultWindow, streamWindow: defaultWindow,
	}
	s.blocks = newBlocks(&l.m.plan, l)
	s.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { s.of.field(f.Name, f.Value) })
	s.decoder.SetMaxStringLength(maxHeader)
	// A small buffer for each of many connections; an answer takes up to 1 KiB.
	s.framer = http2.NewFramer(&s.out, bufio.NewReaderSize(s, min(max(4<<10, l.most<<10), 64<<10)))
	s.framer.SetReuseFrames()
	s.framer.SetMaxReadFrameSize(maxFrame)
	s.out.WriteString(http2.ClientPreface)
	// Writing to a bytes.Buffer does not fail, here and below.
	_ = s.framer.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1024},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: ownWindow})
	_ = s.framer.WriteWindowUpdate(0, ownWindow-defaultWindow)
	return s
}

// Read implements io.Reader for the framer, which calls it when it has handled all answers of the last read. The next
// requests then leave in one write. The lane is unlocked while Read waits.
func (s *session) Read(p []byte) (int, error) {
	s.fill()
	if err := s.flush(); err != nil {
		return 0, err
	}
	s.lane.settle()
	if s.leaving && len(s.requests) == 0 {
		return 0, errLeft
	}
	s.lane.mu.Unlock()
	n, err := s.conn.Read(p)
	s.lane.mu.Lock()
	s.lane.now = s.lane.m.clock()
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed the connection")
	}
	return n, err
}

// serve reads answers until the connection ends.
func (s *session) serve() error {
	for {
		if err := s.step(); err != nil {
			return err
		}
	}
}

// step reads and handles one frame.
func (s *session) step() error {
	frame, err := s.framer.ReadFrame()
	if err != nil {
		return errors.Join(err, s.framer.ErrorDetail())
	}
	return s.handle(frame)
}

// fill begins as many requests as are due and may be in flight.
func (s *session) fill() {
	for s.settled && !s.leaving && len(s.requests) < s.most && s.window >= int64(len(s.lane.message)) {
		due, ok := s.lane.next()
		if !ok {
			return
		}
		s.begin(due)
	}
}

// begin writes one request into the buffer.
func (s *session) begin(due time.Duration) {
	r := &request{}
	if n := len(s.free); n > 0 {
		r, s.free = s.free[n-1], s.free[:n-1]
	}
	*r = request{due: due, id: s.nextID, status: noStatus, message: r.message[:0]}
	s.requests[r.id] = r
	s.unsent = append(s.unsent, r)
	grpc := s.lane.m.plan.Message.keyHeader == ""
	_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: r.id, BlockFragment: s.blocks.next(), EndHeaders: true,
		EndStream: !grpc})
	if grpc {
		_ = s.framer.WriteData(r.id, true, s.lane.withKey())
	}
	s.window -= int64(len(s.lane.message))
	s.nextID += 2
	if s.nextID > math.MaxInt32 {
		s.leaving = true // stream numbers are used up; a new connection begins again
	}
}

// flush writes the buffer. In a closed loop, a request counts from here.
func (s *session) flush() error {
	if s.out.Len() == 0 {
		return nil
	}
	now := s.lane.m.clock()
	for _, r := range s.unsent {
		r.sent = now
		if s.lane.m.plan.Rate == 0 {
			r.due = now
		}
	}
	s.unsent = s.unsent[:0]
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.lane.m.plan.Timeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(s.out.Bytes())
	s.out.Reset()
	return err
}

// expire gives up requests that wait longer than the plan's timeout.
func (s *session) expire() {
	for id, r := range s.requests {
		if s.lane.now-r.sent > s.lane.m.plan.Timeout && r.sent > 0 {
			_ = s.framer.WriteRSTStream(id, http2.ErrCodeCancel)
			s.fail(r, deadlineExceeded(s.lane.m.plan.Timeout))
		}
	}
}

// fail ends a request without an answer. The request is not used again, because a part of its headers may still come.
func (s *session) fail(r *request, f failure) {
	s.lane.tally.fail(f)
	s.lane.lastDone = s.lane.now
	delete(s.requests, r.id)
}

// finish ends a request whose answer is complete.
func (s *session) finish(r *request) {
	s.answered = true
	if s.lane.m.plan.Message.keyHeader != "" {
		r.decideByStatus()
	}
	if f, ok := r.failure(); ok {
		s.fail(r, f)
		return
	}
	s.lane.record(s.lane.now-r.due, r.allowed)
	delete(s.requests, r.id)
	s.free = append(s.free, r)
}

// abandon fails all requests in flight, because the connection has ended.
func (s *session) abandon(cause error) {
	for _, r := range s.requests {
		s.fail(r, unavailable(fmt.Sprintf("the connection ended: %v", cause)))
	}
}
