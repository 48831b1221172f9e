package h2unary

import (
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/guard"
)

const (
	// maxUnsent is how much may wait for a client that does not read, before the server stops to read its requests. The
	// guard does not count it, so thousands of such clients must fit into memory.
	maxUnsent = 32 << 10
	// writeBuffer holds the answers of a usual read: 16 Checks of 1.2 kB. A connection has one only while it writes.
	writeBuffer = 24 << 10
)

// output is what is to be written. One goroutine at a time writes it, and others may append meanwhile.
type output struct {
	buffers *sync.Pool
	// bytes is not written yet. Its memory is shared, unless it has outgrown that.
	bytes  []byte
	shared *[writeBuffer]byte
	// writing means that a goroutine writes, and failed that a write has failed.
	writing bool
	failed  bool
	// The next fields belong to the goroutine that writes. try is attempt; sent and err are its results for tried.
	try   func(fd uintptr) bool
	tried []byte
	sent  int
	err   error
}

// next returns the slice to append to, and add sets it.
func (o *output) next() []byte {
	if o.bytes == nil {
		o.shared = o.buffers.Get().(*[writeBuffer]byte)
		o.bytes = o.shared[:0]
	}
	return o.bytes
}

func (o *output) add(b []byte) { o.bytes = b }

// take removes what is to be written.
func (o *output) take() (b []byte, shared *[writeBuffer]byte) {
	b, shared = o.bytes, o.shared
	o.bytes, o.shared = nil, nil
	return b, shared
}

// windows are the windows of flow control of a connection (RFC 9113, 5.2).
type windows struct {
	// send is how many bytes the server may send on all streams.
	send int64
	// blocked means that a call may have a rest.
	blocked bool
	// received is how many bytes the client has sent since the last WINDOW_UPDATE.
	received int
}

const (
	// initialWindow is the window before any SETTINGS.
	initialWindow = 65535
	// connectionWindow is what a client may send on all streams. When half of it is used, that is given back at once.
	connectionWindow = 4 << 20
)

// rest is the part of an answer that flow control holds back.
type rest struct {
	data []byte
	last ending
}

// ending is what follows the data of an answer.
type ending uint8

const (
	nothing  ending = iota // The stream goes on.
	trailers               // The HEADERS with grpc-status 0 follow.
	endData                // The last DATA has END_STREAM.
)

// maxMessages bounds the messages of a stream that wait for the client.
const maxMessages = 16 << 10

// appendData appends DATA as far as the windows allow, and keeps the rest. data must belong to the call. c.mu is held.
func (c *Conn) appendData(k *Call, data []byte, last ending) {
	b := c.output.next()
	for len(data) > 0 {
		n := min(int64(len(data)), maxFrame, c.window.send, int64(c.peer.window)+int64(k.window))
		if n <= 0 {
			break
		}
		flags := http2.Flags(0)
		if last == endData && n == int64(len(data)) {
			flags = http2.FlagDataEndStream
		}
		b = append(appendFrame(b, http2.FrameData, flags, k.id, int(n)), data[:n]...)
		data = data[n:]
		c.window.send -= n
		k.window -= int(n)
	}
	c.output.add(b)
	k.rest = rest{data, last}
	switch {
	case len(data) > 0:
		c.window.blocked = true
		if last != nothing && k.state != parked {
			k.state, k.Arrived = parked, time.Now()
			c.hold(k, int64(len(data)))
		}
	case last == trailers:
		c.output.add(c.appendTrailers(c.output.next(), k.id))
		c.remove(k)
	case last == endData:
		c.remove(k)
	}
}

// resume sends what waits for flow control. c.mu is held.
func (c *Conn) resume(k *Call) {
	if len(k.rest.data) > 0 {
		c.appendData(k, k.rest.data, k.rest.last)
	}
}

// resumeAll sends what waits for flow control in all calls. c.mu is held.
func (c *Conn) resumeAll() {
	if !c.window.blocked {
		return
	}
	c.window.blocked = false
	for _, k := range c.calls {
		c.resume(k)
	}
}

// resetCall resets a call, whatever its state. c.mu is held.
func (c *Conn) resetCall(k *Call, code http2.ErrCode) {
	c.sendReset(k.id, code)
	c.forget(k)
}

// forget ends a call whose client no longer waits. One that Serve has stays until it is answered. c.mu is held.
func (c *Conn) forget(k *Call) {
	if k.state != waiting {
		c.remove(k)
		return
	}
	k.state = reset
	c.resets++
	if k.cancel != nil {
		k.cancel()
	}
	c.change.Staying -= k.held
	c.change.Leaving += k.held
}

// Cut implements guard.Owner. The next Sweep or Flush sends the resets.
func (c *Conn) Cut(need int64) (freed, leaving int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.change
	freed, leaving = c.cutLargest(need, func(k *Call) bool { return k.state != reset })
	c.change = before // The guard accounts for it.
	return freed, leaving
}

var _ guard.Owner = (*Conn)(nil)
