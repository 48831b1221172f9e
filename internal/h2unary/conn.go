package h2unary

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/extauthz/extauthz/internal/guard"
)

// Conn is a connection. One goroutine reads it. Others complete calls that Serve did not answer at once.
type Conn struct {
	server  *Server
	guarded *guard.Conn
	// raw reads and writes without a wait. It is nil with TLS.
	raw  syscall.RawConn
	born time.Time
	// maxAge is the age at which the connection is drained. 0 means never.
	maxAge time.Duration

	// The next fields belong to the goroutine that reads.
	input   input
	decoder decoder
	// blocks are the heads of header blocks. A block may be skipped if its head is known, and if decoding it would change
	// nothing. Which instructions a block has depends on its bytes alone, so bytes that once changed nothing never do. Its
	// meaning also depends on the dynamic table, so all blocks are forgotten when the table changes. Weaker rules are
	// wrong: two equal blocks can mean different fields, and an insertion inserts each time.
	blocks memo[head]
	reader headReader
	// read is when the last read returned, and batch has the calls that it completed.
	read  time.Time
	batch []*Call
	// grown means that a message in pieces has grown since boundPartial.
	grown bool

	mu sync.Mutex
	// changed is signalled with mu when the unsent output has shrunk, or when calls has become empty.
	changed sync.Cond
	// closed means that nothing is sent any more.
	closed  bool
	started startPhase
	// calls has the open calls by stream. most is the largest number that it has had, because a map never shrinks.
	// resets is the number of its calls in the state reset.
	calls  map[uint32]*Call
	most   int
	resets int
	// free has calls that have ended, for reuse.
	free    []*Call
	output  output
	window  windows
	streams streamNumbers
	block   fragments
	budget  budget
	drainer drainer
	peer    peerSettings
	// begun is when an incomplete frame began. It is the zero time if there is none.
	begun time.Time
	// heard is when the client last sent something.
	heard time.Time
	// swept is when Sweep was last called. Until caughtUp, requests are read that arrived while the process stood still.
	swept, caughtUp time.Time
	// pinged is when the server asked whether the client is alive. It is the zero time once the client has sent something.
	pinged time.Time
	// change is what settle has not reported to the guard yet.
	change guard.Change
}

// startPhase is what the client has sent since it connected.
type startPhase uint8

const (
	sentNothing startPhase = iota
	sentPreface
	sentSettings
	sentAck // The client has acknowledged the server's settings.
)

const (
	// freeCalls bounds how many calls a connection keeps for reuse.
	freeCalls = 64
	// maxBatch bounds a batch, so that its answers are sent before the rest of a read is parsed. More gains nothing, and
	// the answers of a client that does not read them would take more memory.
	maxBatch = 128
)

func newConn(s *Server, nc *guard.Conn) *Conn {
	now := time.Now()
	c := &Conn{
		server: s, guarded: nc, born: now, read: now, heard: now, swept: now, calls: make(map[uint32]*Call),
		budget: budget{credit: beginCredit}, window: windows{send: initialWindow},
		peer: peerSettings{window: initialWindow}, streams: streamNumbers{end: lastStreamUnknown},
	}
	c.changed.L = &c.mu
	c.output.buffers = &s.outputs
	c.output.try = c.output.attempt
	c.decoder.table.limit = maxTable
	c.reader.methods, c.reader.keep = s.methods, s.keep
	c.input.open(c)
	if age := s.cfg.MaxAge; age > 0 {
		const spread = 10 // Clients that connected together do not leave together.
		c.maxAge = age - age/spread + rand.N(max(1, 2*age/spread))
	}
	return c
}

// run serves the connection until it ends, and until all its calls are answered.
func (c *Conn) run() {
	defer c.end()
	defer c.recovered()
	_ = c.guarded.SetDeadline(c.born.Add(c.server.cfg.ConnectTimeout)) // The next read shows an error.
	c.mu.Lock()
	c.sendSettings()
	c.mu.Unlock()
	for more := false; ; {
		if !more {
			if err := c.input.fill(c); err != nil {
				if c.started < sentSettings && errors.Is(err, os.ErrDeadlineExceeded) {
					c.guarded.Count(guard.SlowRequest)
				}
				c.close()
				return
			}
			c.read = time.Now()
		}
		used, failed := c.receive(c.input.data())
		if more = c.full(); len(c.batch) > 0 {
			failed = cmp.Or(failed, c.serve())
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

// ReadAt returns when the read that completed the calls returned. Only Serve may call it, before it returns.
func (c *Conn) ReadAt() time.Time { return c.read }

// recovered is deferred by each goroutine of a connection. A panic is a bug. It ends this connection, not the process.
func (c *Conn) recovered() {
	if p := recover(); p != nil {
		c.server.cfg.Panicked(p)
		c.guarded.Abort()
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
func (c *Conn) serve() *failure {
	failed := c.unzipLast()
	c.server.cfg.Serve(c, c.batch)
	c.detach(c.batch)
	clear(c.batch)
	c.batch = c.batch[:0]
	return failed
}

// perBegun is the memory of a call, and of its place in the table of calls. perCall is the memory of the goroutine, the
// timers and the decoded request of a call that waits. perByte is how often the message of such a call is in memory.
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
	change, settled := c.change, guard.Change{Requests: len(c.calls)}
	c.change = settled
	c.mu.Unlock()
	if change != settled {
		change.Requests = settled.Requests
		c.guarded.Account(change)
	}
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
	*k = Call{conn: c}
	if len(c.free) < freeCalls {
		c.free = append(c.free, k)
	}
	if len(c.calls) == 0 {
		c.changed.Broadcast()
		c.drainer.wake(c)
	}
}

// end closes the connection, cancels all calls, and waits until they are answered.
func (c *Conn) end() {
	c.mu.Lock()
	c.closed = true // before the client can see the end
	c.mu.Unlock()
	c.guarded.Abort()
	c.mu.Lock()
	c.changed.Broadcast()
	for _, k := range c.calls {
		unserved := slices.Contains(c.batch, k) // Serve has caused a panic, or its batch was not complete.
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
	_ = c.guarded.Close() // Abort has closed the connection.
}

// linger ends a connection after an error: the client gets the GOAWAY, even if it is still sending. Closing at once
// would make the system send a reset, which can overtake the GOAWAY.
func (c *Conn) linger(f *failure) {
	c.guarded.Count(f.reason)
	c.mu.Lock()
	c.output.add(appendGoAway(c.output.next(), c.streams.last, f.code, f.debug))
	c.mu.Unlock()
	c.flushAll()
	c.discardRest()
}

const (
	// lingering is how long the server waits for the client to close.
	lingering = time.Second
	// maxDiscarded bounds how much the server reads from a client that goes on sending.
	maxDiscarded = 1 << 20
)

// discardRest tells the client that nothing follows, and discards what it still sends until it closes.
func (c *Conn) discardRest() {
	_ = c.guarded.SetDeadline(time.Now().Add(lingering)) // The next read shows an error.
	if c.guarded.CloseWrite() != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(c.guarded.Conn, maxDiscarded)) // An error also ends the connection.
}
