package guard

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The estimated memory of a stream in gRPC's server. A stream has a goroutine. One byte of a header block can stand for
// a header of 32 bytes or more, and the server keeps up to 64 kB of headers for a stream. A message exists three times
// while it is read: in frames, in one piece, and in the decoded request. Each frame is an element of a list.
const (
	perStream     = 16 << 10
	perHeaderByte = 64
	maxHeaders    = 128 << 10
	perDataByte   = 8
	perFrame      = 64
)

// Frames outside of requests (PING, SETTINGS, WINDOW_UPDATE, empty DATA and so on) cost a connection credit. A request
// gains more credit than the frames cost that a normal client sends with it.
const (
	beginCredit = 1_000
	maxCredit   = 10_000
	perRequest  = 20
	perTick     = 10
)

// longLived is how many streams of a connection may wait longer than maxAnswer: they watch the health of the service.
const longLived = 8

// Codes of RST_STREAM (RFC 9113, 7). Clients of gRPC report them as CANCELLED and RESOURCE_EXHAUSTED.
const (
	codeCancel = 8
	codeCalm   = 11
)

// http2Conn is an HTTP/2 connection. To reset a stream, it sends RST_STREAM to the client, and to the server as if it
// came from the client.
type http2Conn struct {
	conn
	in      frames
	streams map[uint32]stream
	credit  int
	// toServer and toClient are resets to be sent at the next boundary of frames.
	toServer, toClient []byte
	cutSince           int64       // when the first reset of toServer was added
	pending            atomic.Bool // toServer is not empty
	interrupted        atomic.Bool // a read was interrupted for toServer before

	writeMu sync.Mutex // held during a write, and locked before mu
	out     frames
}

// stream is a request that has begun to arrive and whose answer is not written.
type stream struct {
	held     int64
	begun    int64
	complete int64 // when its last byte arrived, 0 before
	headers  int64 // the part of held for headers
	cut      bool
}

func newHTTP2() *http2Conn {
	return &http2Conn{in: frames{skip: preface}, streams: make(map[uint32]stream), credit: beginCredit}
}

// Read implements net.Conn.
func (c *http2Conn) Read(p []byte) (int, error) {
	for {
		if n := c.takeResets(p); n > 0 {
			return n, nil
		}
		n, err := c.Conn.Read(p[:c.upTo(len(p))])
		if n > 0 {
			c.received(p[:n])
			return n, err
		}
		if !c.interrupted.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		// The server sets deadlines only before the first stream, so reset has set this one. It is removed before toServer is
		// read again, so that a later interruption is not lost.
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
}

// takeResets copies resets for the server into p, and returns their length. It returns 0 within a frame of the client.
func (c *http2Conn) takeResets(p []byte) int {
	if !c.pending.Load() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.in.atBoundary() {
		return 0
	}
	n := copy(p, c.toServer)
	c.toServer = c.toServer[n:]
	if len(c.toServer) == 0 {
		c.pending.Store(false)
		c.toServer = nil
		for id, s := range c.streams {
			if s.cut {
				c.drop(id)
			}
		}
	}
	return n
}

// upTo returns how many bytes to read at most. While resets wait for the server, that is no more than the current
// frame.
func (c *http2Conn) upTo(most int) int {
	if !c.pending.Load() {
		return most
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(most, c.in.missing())
}

// received accounts for bytes that the client has sent.
func (c *http2Conn) received(b []byte) {
	now := c.l.now.Load()
	c.mu.Lock()
	delta := int64(0)
	c.in.follow(b, now, func(f frame) { delta += c.receive(f, now) })
	c.hold(delta, 0)
	flooded := c.credit < 0
	c.mu.Unlock()
	if flooded {
		c.l.cuts[Flood].Add(1)
		c.cut()
	}
	if c.l.over() {
		c.l.freeMemory()
	}
}

// receive accounts for a frame of the client, and returns the change of what the connection holds. c.mu is held.
func (c *http2Conn) receive(f frame, now int64) int64 {
	s, known := c.streams[f.stream]
	before := s.held
	switch {
	case f.kind == typeHeaders || f.kind == typeContinuation:
		if f.kind == typeHeaders && !known {
			known = true
			s = stream{held: perStream, begun: now}
			c.credit = min(maxCredit, c.credit+perRequest)
		} else {
			c.credit--
		}
		more := min(int64(f.length)*perHeaderByte, maxHeaders-s.headers)
		s.headers += more
		s.held += more
	case f.kind == typeData && f.length > 0:
		s.held += int64(f.length)*perDataByte + perFrame
	case f.kind == typeReset && known:
		c.drop(f.stream)
		return 0
	default:
		c.credit--
	}
	if !known {
		return 0 // the server has closed the stream, too
	}
	if f.endsStream() && s.complete == 0 {
		s.complete = max(1, now)
		c.waiting++
	}
	c.streams[f.stream] = s
	if s.cut {
		c.hold(0, s.held-before)
		return 0
	}
	return s.held - before
}

// drop removes a stream that has ended. c.mu is held.
func (c *http2Conn) drop(id uint32) {
	s := c.streams[id]
	if s.complete != 0 {
		c.waiting--
	}
	if s.cut {
		c.hold(0, -s.held)
	} else {
		c.hold(-s.held, 0)
	}
	delete(c.streams, id)
}

// Write implements net.Conn.
func (c *http2Conn) Write(p []byte) (int, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	n, err := c.write(p)
	c.sent(p[:n])
	if err == nil {
		err = c.writeResets()
	}
	return n, err
}

// sent accounts for bytes that the server has sent.
func (c *http2Conn) sent(b []byte) {
	now := c.l.now.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.follow(b, now, func(f frame) {
		if _, known := c.streams[f.stream]; known && (f.kind == typeReset || f.endsStream()) {
			c.drop(f.stream)
			c.last.Store(now)
		}
	})
}

// writeResets writes the resets for the client, unless the server is within a frame. c.writeMu is held.
func (c *http2Conn) writeResets() error {
	c.mu.Lock()
	resets := c.toClient
	if !c.out.atBoundary() || len(resets) == 0 {
		c.mu.Unlock()
		return nil
	}
	c.toClient = nil
	c.mu.Unlock()
	_, err := c.write(resets)
	return err
}

// reset resets streams in the order of ids. c.mu is held.
func (c *http2Conn) reset(ids []uint32, code uint32, why Reason) {
	if len(c.toServer) == 0 {
		c.cutSince = c.l.now.Load()
	}
	for _, id := range ids {
		s := c.streams[id]
		s.cut = true
		c.streams[id] = s
		c.hold(-s.held, s.held)
		c.toServer = appendReset(c.toServer, id, codeCancel)
		c.toClient = appendReset(c.toClient, id, code)
	}
	c.l.cuts[why].Add(uint64(len(ids)))
	c.pending.Store(true)
	c.interrupted.Store(true)
	_ = c.SetReadDeadline(time.Unix(1, 0)) // an error means that the connection is closed
	go func() {                            // ends with the write, whose time sweep bounds
		c.writeMu.Lock()
		defer c.writeMu.Unlock()
		_ = c.writeResets() // the server's next write has the same error
	}()
}

// choose returns the ids of the streams that which selects and that are not cut, sorted by order. c.mu is held.
func (c *http2Conn) choose(which func(stream) bool, order func(a, b stream) int) (ids []uint32) {
	for id, s := range c.streams {
		if !s.cut && which(s) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint32) int {
		return cmp.Or(order(c.streams[a], c.streams[b]), cmp.Compare(a, b))
	})
	return ids
}

func (c *http2Conn) cutRequests(need int64) (freed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := c.choose(func(stream) bool { return true }, func(a, b stream) int { return cmp.Compare(b.held, a.held) })
	for i, id := range ids {
		if freed >= need {
			ids = ids[:i]
			break
		}
		freed += c.streams[id].held
	}
	if len(ids) > 0 {
		c.reset(ids, codeCalm, OverBudget)
	}
	return freed
}

func (c *http2Conn) sweep(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credit = min(maxCredit, c.credit+perTick)
	switch {
	case c.in.skip == 0 && !c.in.atBoundary() && since(c.in.begun, now) > maxReceive,
		c.pending.Load() && since(c.cutSince, now) > maxCut:
		c.l.cuts[SlowRequest].Add(1)
		_ = c.below.Close() // the server then closes the connection, too
		return
	}
	slow := c.choose(func(s stream) bool { return s.complete == 0 && since(s.begun, now) > maxReceive }, byAge)
	if len(slow) > 0 {
		c.reset(slow, codeCancel, SlowRequest)
	}
	if c.waiting <= longLived {
		return
	}
	late := c.choose(func(s stream) bool { return s.complete != 0 && since(s.complete, now) > maxAnswer }, byAge)
	if len(late) > longLived {
		c.reset(late[longLived:], codeCancel, SlowAnswer)
	}
}

func byAge(a, b stream) int { return cmp.Compare(a.begun, b.begun) }
