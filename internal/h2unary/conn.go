package h2unary

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/internal/guard"
)

// Conn is a connection. One goroutine reads it. Others complete calls that Serve did not answer at once.
type Conn struct {
	server  *Server
	metered *guard.Metered
	raw     syscall.RawConn // nil with TLS
	born    time.Time
	maxAge  time.Duration // 0: none

	// The next fields belong to the goroutine that reads.
	input   input
	decoder decoder
	blocks  blocks
	reader  headReader
	read    time.Time // When the last read returned.
	batch   []*Call   // Completed by it.
	grown   bool      // A message in pieces has grown.

	mu      sync.Mutex
	changed sync.Cond // Of mu: unsent has shrunk, or calls is empty.
	closed  bool      // Nothing is sent any more.
	started startPhase
	calls   map[uint32]*Call // By stream.
	most    int              // The most calls at once that calls has had room for.
	resets  int              // How many of calls are reset.
	free    []*Call
	output  output
	window  windows
	streams streamNumbers
	block   fragments
	budget  budget
	drainer drainer
	peer    peerSettings
	begun   time.Time // When the frame began that is not complete; the zero time without one.
	heard   time.Time // When the client last sent something.
	pinged  time.Time // When the server asked whether the client is alive; the zero time if it has answered.
	change  guard.Change
}

// startPhase is what the client has sent at the begin of a connection.
type startPhase uint8

const (
	sentNothing startPhase = iota
	sentPreface
	sentSettings
	sentAck // of the server's settings
)

const (
	// freeCalls bounds how many calls a connection keeps for reuse.
	freeCalls = 64
	// maxBatch bounds a batch, so that its answers are sent before the rest of a read is parsed. More gains nothing, and
	// the answers of a client that does not read them would take more memory.
	maxBatch = 128
)

func newConn(s *Server, nc *guard.Metered) *Conn {
	now := time.Now()
	c := &Conn{
		server: s, metered: nc, born: now, read: now, heard: now, calls: make(map[uint32]*Call),
		budget: newBudget(), window: newWindows(), peer: defaultPeer,
	}
	c.changed.L = &c.mu
	c.output.buffers = &s.outputs
	c.output.attempt.try = c.output.attempt.write
	c.decoder.table.limit = maxTable
	c.reader.methods, c.reader.keep = s.methods, s.keep
	c.input.open(c)
	if age := s.cfg.MaxAge; age > 0 {
		const spread = 10 // clients that connected together do not leave together
		c.maxAge = age - age/spread + rand.N(max(1, 2*age/spread))
	}
	return c
}

// run serves the connection until it ends, and until all its calls are answered.
func (c *Conn) run() {
	defer c.end()
	defer func() {
		if p := recover(); p != nil { // a bug ends this connection, not the process
			c.server.cfg.Panicked(p)
		}
	}()
	_ = c.metered.SetDeadline(c.born.Add(c.server.cfg.ConnectTimeout)) // an error shows in the next read
	c.mu.Lock()
	c.sendSettings()
	c.mu.Unlock()
	for more := false; ; {
		if !more {
			if err := c.input.fill(c); err != nil {
				if c.started < sentSettings && errors.Is(err, os.ErrDeadlineExceeded) {
					c.metered.Count(guard.SlowRequest)
				}
				c.close()
				return
			}
			c.read = time.Now()
		}
		used, failed := c.receive(c.input.data())
		if more = c.full(); len(c.batch) > 0 {
			c.serve()
		}
		c.input.drop(used)
		c.Flush()
		if failed != nil {
			c.linger(failed)
			return
		}
		if !c.awaitReader() {
			c.close()
			return
		}
	}
}

// close ends a connection that is drained without cutting off the last answers.
func (c *Conn) close() {
	c.mu.Lock()
	drained := c.drainer.ended(c)
	c.mu.Unlock()
	if drained {
		c.flushAll()
		c.discardRest()
	}
}

// serve passes the batch to Serve.
func (c *Conn) serve() {
	c.unzipLast()
	batch := c.batch
	defer func() {
		if p := recover(); p != nil {
			c.server.cfg.Panicked(p)
			c.failAll(batch)
		}
		clear(c.batch)
		c.batch = c.batch[:0]
	}()
	c.server.cfg.Serve(c, batch)
	c.detach(batch)
}

// failAll fails the calls of a batch that are not answered. Those that were answered may be in use again, for requests
// that have not been passed to Serve yet. But no read happens between the batch and its answers, so there are none.
func (c *Conn) failAll(batch []*Call) {
	for _, k := range batch {
		c.mu.Lock()
		open := c.calls[k.id] == k && (k.state == waiting || k.state == reset)
		c.mu.Unlock()
		if open {
			k.Fail(codes.Internal, "internal error")
		}
	}
}

// perBegun is the memory of a call, and of its place in the table of calls. One that waits also has a goroutine, timers
// and a decoded request, which is perCall. perByte is how often its message is there.
const (
	perBegun = 512
	perCall  = 8 << 10
	perByte  = 4
)

// detach accounts for the calls of a batch that wait, after their messages may have been copied.
func (c *Conn) detach(batch []*Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) == 0 {
		return
	}
	for _, k := range batch {
		if c.calls[k.id] == k && k.state == waiting && k.Message != nil {
			c.hold(k, perCall+perByte*int64(len(k.Message))-int64(cap(k.buffer)))
			k.Message, k.buffer = nil, nil
		}
	}
}

// hold adds to what a call holds. c.mu is held.
func (c *Conn) hold(k *Call, more int64) {
	k.held += more
	if k.state == reset {
		c.change.Leaving += more
		return
	}
	c.change.Staying += more
}

// settle reports to the guard what the calls hold. c.mu must not be held.
func (c *Conn) settle() {
	c.mu.Lock()
	change := c.change
	if change == (guard.Change{Requests: len(c.calls)}) {
		c.mu.Unlock()
		return
	}
	c.change = guard.Change{Requests: len(c.calls)}
	change.Requests = len(c.calls)
	c.mu.Unlock()
	c.metered.Account(change)
}

// remove ends a call: nothing is left to be sent or done. c.mu is held.
func (c *Conn) remove(k *Call) {
	delete(c.calls, k.id)
	if k.state == reset {
		c.resets--
	}
	c.hold(k, -k.held)
	if k.cancel != nil {
		k.cancel()
	}
	*k = Call{conn: c, buffer: nil}
	if len(c.free) < freeCalls {
		c.free = append(c.free, k)
	}
	if len(c.calls) == 0 {
		c.changed.Broadcast()
		c.drainer.wake(c)
	}
}

// cutOff closes the connection at once.
func (c *Conn) cutOff() { c.metered.Abort() }

// end closes the connection, cancels all calls, and waits until they are answered.
func (c *Conn) end() {
	c.cutOff()
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	for _, k := range c.calls {
		unserved := slices.Contains(c.batch, k) // after a panic
		if unserved || k.state != waiting && k.state != reset {
			c.remove(k)
			continue
		}
		if k.cancel != nil {
			k.cancel()
		}
	}
	for len(c.calls) > 0 {
		c.changed.Wait()
	}
	c.mu.Unlock()
	c.input.close(c)
	c.settle()
	_ = c.metered.Close() // it is cut off already
}

// linger ends a connection after an error: the client gets the GOAWAY, even if it is still sending. Closing at once
// would make the system send a reset, which can overtake the GOAWAY.
func (c *Conn) linger(f *failure) {
	c.metered.Count(f.reason)
	c.mu.Lock()
	c.output.add(appendGoAway(c.output.next(), c.streams.last, f.code, f.debug))
	c.mu.Unlock()
	c.flushAll()
	c.discardRest()
}

// lingering is how long the server waits for the client to close.
const lingering = time.Second

func (c *Conn) discardRest() {
	_ = c.metered.SetDeadline(time.Now().Add(lingering)) // an error shows in the next read
	if c.metered.CloseWrite() != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(c.metered.Conn, maxDiscarded)) // the client ends it, or the deadline
}

// maxDiscarded bounds what is read of a client that goes on sending.
const maxDiscarded = 1 << 20
