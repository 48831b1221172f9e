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

// What a stream takes in gRPC's server. A stream has a goroutine. Of a header block one byte can stand for a header of
// 32 or more, of which the server keeps up to 64 kB for a stream. A message is there three times while it is read: in
// frames, in one piece, and as the request's text, beside what is made of it. Each frame is an element of a list.
const (
	perStream     = 16 << 10
	perHeaderByte = 64
	maxHeaders    = 128 << 10
	perDataByte   = 8
	perFrame      = 64
)

// Frames that ask nothing (PING, SETTINGS, WINDOW_UPDATE, empty DATA and so on) cost a connection credit. A request
// gains more than any client sends along with it.
const (
	beginCredit = 1_000
	maxCredit   = 10_000
	perRequest  = 20
	perTick     = 10
)

// longLived is how many streams of a connection may be older than any answer takes: those that watch its health.
const longLived = 8

// Codes of RST_STREAM (RFC 9113, 7), which gRPC's clients take for CANCELLED and RESOURCE_EXHAUSTED.
const (
	codeCancel = 8
	codeCalm   = 11
)

// http2Conn is a connection of HTTP/2. It resets streams by a frame to the client and one to the server, as if the
// client had done it.
type http2Conn struct {
	conn
	in      frames
	streams map[uint32]stream
	credit  int
	// toServer and toClient are resets that go out at the next boundary of frames.
	toServer, toClient []byte
	cutSince           int64       // when the first of toServer was put there
	pending            atomic.Bool // whether there is any toServer
	interrupted        atomic.Bool // whether a read was ever interrupted for it

	writeMu sync.Mutex // held while something is written, before mu
	out     frames
}

// stream is a request that has begun to arrive and whose answer is not written.
type stream struct {
	held     int64
	begun    int64
	complete int64 // when its last byte arrived, 0 before
	headers  int64 // the part of held that is for headers
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
		// The server sets deadlines only before the first stream, so this one is of reset. It goes before toServer is looked
		// at, so that no later one is lost.
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
}

// takeResets puts into p what is to be read next by the server in the place of the client's bytes.
func (c *http2Conn) takeResets(p []byte) int {
	if !c.pending.Load() {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.in.between() {
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

// upTo is how much to read at once: while there is something to put in between frames, not beyond the end of one.
func (c *http2Conn) upTo(most int) int {
	if !c.pending.Load() {
		return most
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(most, c.in.missing())
}

// received follows what the client has sent.
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
		c.l.relieve()
	}
}

// receive notes a frame of the client, and returns how much more the connection holds. c.mu is held.
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
		return 0 // the server, too, has closed it
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

// drop forgets a stream that is over. c.mu is held.
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

// sent follows what the server has sent.
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

// writeResets writes what is to go to the client, if it is not in the middle of a frame. c.writeMu is held.
func (c *http2Conn) writeResets() error {
	c.mu.Lock()
	resets := c.toClient
	if !c.out.between() || len(resets) == 0 {
		c.mu.Unlock()
		return nil
	}
	c.toClient = nil
	c.mu.Unlock()
	_, err := c.write(resets)
	return err
}

// reset resets streams, whose ids are in the order in which they go. c.mu is held.
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
	_ = c.SetReadDeadline(time.Unix(1, 0)) // a connection that is closed needs none
	go func() {                            // ends with the write, which sweep bounds
		c.writeMu.Lock()
		defer c.writeMu.Unlock()
		_ = c.writeResets() // the server's next write has the same error
	}()
}

// choose returns the ids of streams that have not been cut, in the order of less. c.mu is held.
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

func (c *http2Conn) shed(need int64) (freed int64) {
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
	case c.in.skip == 0 && !c.in.between() && since(c.in.begun, now) > maxReceive,
		c.pending.Load() && since(c.cutSince, now) > maxCut:
		c.l.cuts[SlowRequest].Add(1)
		_ = c.Conn.Close() // the server notices, and lets go of it
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
