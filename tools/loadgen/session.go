package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
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
	lane     *lane
	conn     net.Conn
	in       input
	out      bytes.Buffer  // frames to be written
	framer   *http2.Framer // reads raw and writes to out
	raw      bytes.Reader
	blocks   *blocks
	meanings *meanings
	header   []byte   // the header block so far
	open     bool     // the header block is not complete; only CONTINUATION may follow
	of       *request // the request that header is the answer to

	requests map[uint32]*request // in flight, by their streams
	free     []*request          // to be used again
	unsent   []*request          // in out
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
	// writeBy is the deadline of writes.
	writeBy time.Duration
}

// newSession writes what begins a connection, with the settings of Envoy 1.40.
func newSession(l *lane, conn net.Conn) *session {
	s := &session{
		lane: l, conn: conn, requests: map[uint32]*request{}, nextID: 1, meanings: newMeanings(),
		most: l.most, window: defaultWindow, streamWindow: defaultWindow,
	}
	s.blocks = newBlocks(&l.m.plan, l)
	// A small buffer for each of many connections; an answer takes up to 1 KiB.
	s.in.buffer = make([]byte, min(max(4<<10, l.most<<10), 64<<10))
	s.framer = http2.NewFramer(&s.out, &s.raw)
	s.framer.SetMaxReadFrameSize(maxFrame)
	s.out.WriteString(http2.ClientPreface)
	_ = s.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: tableSize},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1024},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: ownWindow}) // to a buffer, as below
	_ = s.framer.WriteWindowUpdate(0, ownWindow-defaultWindow)
	return s
}

// step reads and handles one frame.
func (s *session) step() error {
	for {
		if raw := s.in.next(); raw != nil {
			return s.handle(raw)
		}
		if err := s.receive(); err != nil {
			return err
		}
	}
}

// receive reads from the connection, when all answers of the last read are handled. Before, the next requests leave in
// one write. The lane is unlocked while receive waits.
func (s *session) receive() error {
	s.fill()
	if err := s.flush(); err != nil {
		return err
	}
	s.lane.settle()
	if s.leaving && len(s.requests) == 0 {
		return errLeft
	}
	room := s.in.room()
	s.lane.mu.Unlock()
	n, err := s.conn.Read(room)
	s.lane.mu.Lock()
	s.lane.now = s.lane.m.clock()
	s.in.to += n
	if errors.Is(err, io.EOF) {
		return errors.New("the server closed the connection")
	}
	return err
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
	var r *request
	if n := len(s.free); n > 0 {
		r, s.free = s.free[n-1], s.free[:n-1]
	} else {
		r = new(request)
	}
	*r = request{due: due, id: s.nextID, meaning: meaning{status: noStatus}, message: r.message[:0]}
	s.requests[r.id] = r
	s.unsent = append(s.unsent, r)
	flags := http2.FlagHeadersEndHeaders
	withoutBody := s.lane.m.plan.Message.keyHeader != ""
	if withoutBody {
		flags |= http2.FlagHeadersEndStream
	}
	b := appendFrame(s.out.AvailableBuffer(), http2.FrameHeaders, flags, r.id, s.blocks.next())
	if !withoutBody {
		b = appendFrame(b, http2.FrameData, http2.FlagDataEndStream, r.id, s.lane.withKey())
	}
	s.out.Write(b)
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
	// Not for each write: a new deadline costs as much as several requests.
	if timeout := s.lane.m.plan.Timeout; s.writeBy < now+timeout/2 {
		s.writeBy = now + timeout
		if err := s.conn.SetWriteDeadline(s.lane.m.began.Add(s.writeBy)); err != nil {
			return err
		}
	}
	_, err := s.conn.Write(s.out.Bytes())
	s.out.Reset()
	return err
}

// push fills and flushes, while another goroutine reads.
func (s *session) push() {
	s.fill()
	if err := s.flush(); err != nil {
		_ = s.conn.Close() // the reader reports it
	}
}

// expire gives up requests that wait longer than the plan's timeout.
func (s *session) expire() {
	for _, r := range s.requests {
		if s.lane.now-r.sent > s.lane.m.plan.Timeout && r.sent > 0 {
			_ = s.framer.WriteRSTStream(r.id, http2.ErrCodeCancel) // to a buffer
			s.fail(r, failure{codes.DeadlineExceeded, fmt.Sprintf("no answer within %s", s.lane.m.plan.Timeout)})
		}
	}
}

// fail ends a request without an answer. The request is not used again, because a part of its headers may still come.
func (s *session) fail(r *request, f failure) {
	s.lane.m.tally.fail(f)
	s.lane.lastDone = s.lane.now
	delete(s.requests, r.id)
}

// finish ends a request whose answer is complete.
func (s *session) finish(r *request) {
	s.answered = true
	if s.lane.m.plan.Message.keyHeader != "" && (r.http == "" || r.http == "429") { // the status is the answer
		r.status, r.decided, r.allowed, r.http = int(codes.OK), true, r.http == "", ""
	}
	if f, ok := r.failure(); ok {
		s.fail(r, f)
		return
	}
	l := s.lane
	l.batch = append(l.batch, outcome{l.now - r.due, r.allowed, l.now <= l.m.end()})
	l.lastDone = l.now
	delete(s.requests, r.id)
	s.free = append(s.free, r)
}
