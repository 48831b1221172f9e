package h2unary

import (
	"bytes"
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

// receive takes complete frames from b until the batch is full, and returns their length. Nothing after a failure is
// parsed. Requests before it are in the batch, and are answered as if they had come in an earlier read.
func (c *Conn) receive(b []byte) (used int, failed *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard, c.pinged = c.read, time.Time{}
	c.budget.refill(c.read)
	if c.started == sentNothing {
		known := min(len(b), len(http2.ClientPreface))
		if !bytes.Equal(b[:known], []byte(http2.ClientPreface[:known])) {
			return 0, broken(http2.ErrCodeProtocol, "no preface of HTTP/2")
		}
		if known < len(http2.ClientPreface) {
			return 0, nil
		}
		used, c.started = known, sentPreface
	}
	for !c.full() {
		f, n, ok := nextFrame(b[used:])
		if !ok {
			if n > maxFrame {
				return used, broken(http2.ErrCodeFrameSize, "the frame is too large")
			}
			break
		}
		used += n
		if failed = c.receiveFrame(&f); failed != nil {
			return used, failed
		}
		if !c.block.open {
			c.begun = time.Time{}
		}
	}
	if c.grown {
		c.boundPartial()
	}
	switch {
	case used == len(b) && !c.block.open, c.full():
		c.begun = time.Time{}
	case c.begun.IsZero():
		c.begun = c.read
	}
	return used, nil
}

// full reports whether the batch is complete before the end of the read.
func (c *Conn) full() bool {
	n := len(c.batch)
	return n == maxBatch || n > 0 && c.batch[n-1].zipped
}

// receiveFrame handles one frame. c.mu is held.
func (c *Conn) receiveFrame(f *frame) *failure {
	switch {
	case c.started == sentPreface && (f.kind != http2.FrameSettings || f.flags.Has(http2.FlagSettingsAck)):
		return broken(http2.ErrCodeProtocol, "the first frame is not SETTINGS")
	case c.block.open && (f.kind != http2.FrameContinuation || f.stream != c.block.stream):
		return broken(http2.ErrCodeProtocol, "a header block is interrupted")
	}
	switch f.kind {
	case http2.FrameData:
		return c.receiveData(f)
	case http2.FrameHeaders:
		return c.receiveHeaders(f)
	case http2.FrameContinuation:
		return c.receiveContinuation(f)
	case http2.FrameRSTStream:
		return c.receiveReset(f)
	}
	debug := "too many frames"
	if f.kind == http2.FramePing {
		debug = "too_many_pings" // The servers of gRPC use this name.
	}
	if failed := c.budget.charge(debug); failed != nil {
		return failed
	}
	switch f.kind {
	case http2.FrameSettings:
		if c.started == sentPreface {
			c.started = sentSettings
			_ = c.guarded.SetDeadline(time.Time{}) // The next read shows an error.
		}
		return c.receiveSettings(f)
	case http2.FramePing:
		return c.receivePing(f)
	case http2.FrameWindowUpdate:
		return c.receiveWindowUpdate(f)
	case http2.FramePriority:
		return c.receivePriority(f)
	case http2.FrameGoAway:
		if f.stream != 0 {
			return broken(http2.ErrCodeProtocol, "GOAWAY of a stream")
		}
	case http2.FramePushPromise:
		return broken(http2.ErrCodeProtocol, "PUSH_PROMISE of a client")
	}
	return nil // Frames of unknown types are ignored.
}

func (c *Conn) receivePing(f *frame) *failure {
	switch {
	case f.stream != 0:
		return broken(http2.ErrCodeProtocol, "PING of a stream")
	case len(f.payload) != len(drainPing):
		return broken(http2.ErrCodeFrameSize, "PING of a wrong length")
	case f.flags.Has(http2.FlagPingAck):
		if !c.drainer.begun.IsZero() && string(f.payload) == drainPing {
			c.drainer.finish(c)
		}
		return nil
	}
	c.output.add(appendPing(c.output.next(), http2.FlagPingAck, f.payload))
	return nil
}

func (c *Conn) receivePriority(f *frame) *failure {
	switch {
	case f.stream == 0:
		return broken(http2.ErrCodeProtocol, "PRIORITY of no stream")
	case len(f.payload) != priorityBytes:
		return broken(http2.ErrCodeFrameSize, "PRIORITY of a wrong length")
	case binary.BigEndian.Uint32(f.payload)&^(1<<31) == f.stream:
		return broken(http2.ErrCodeProtocol, "a stream depends on itself")
	}
	return nil
}

// unpad removes the padding of a frame.
func unpad(f *frame) (content []byte, ok bool) {
	if !f.flags.Has(http2.FlagDataPadded) {
		return f.payload, true
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return nil, false
	}
	return f.payload[1 : len(f.payload)-int(f.payload[0])], true
}

// receiveData handles DATA. c.mu is held.
func (c *Conn) receiveData(f *frame) *failure {
	if c.window.received += len(f.payload); c.window.received >= connectionWindow/2 {
		// The memory of requests is bounded elsewhere. So the window of the connection only has to be open.
		c.output.add(appendWindowUpdate(c.output.next(), 0, c.window.received))
		c.window.received = 0
	}
	content, ok := unpad(f)
	k := c.calls[f.stream]
	switch {
	case f.stream == 0 || k == nil && c.streams.idle(f.stream):
		return broken(http2.ErrCodeProtocol, "DATA of no stream")
	case !ok:
		return broken(http2.ErrCodeProtocol, "the padding is longer than the frame")
	case k == nil && c.streams.ignored(f.stream), k != nil && k.state == reset:
		return c.budget.charge("too much DATA of streams that were reset")
	case k == nil || k.state != arriving:
		return broken(http2.ErrCodeStreamClosed, "DATA of a stream that the client has ended")
	}
	last := f.flags.Has(http2.FlagDataEndStream)
	if len(content) == 0 && !last {
		if failed := c.budget.charge("too many empty frames"); failed != nil {
			return failed
		}
	}
	if k.received += len(f.payload); k.received > c.streamWindow() {
		return c.breakStream(k, http2.ErrCodeFlowControl)
	}
	if padding := len(f.payload) - len(content); padding > 0 && !last {
		c.output.add(appendWindowUpdate(c.output.next(), k.id, padding)) // The message must still fit.
		k.received -= padding
	}
	k.content += len(content)
	c.appendContent(k, content, last)
	switch {
	case k.head.fault == noFault:
		if code, reason := c.checkPrefix(k, last); code != codes.OK {
			return c.refuse(k, last, code, reason)
		}
	case k.head.fault == unknownMethod && len(content) > 0 && !last:
		// The method may be a stream, whose client waits for an answer before it goes on. Reflection is such a method.
		return c.refuse(k, last, codes.Unimplemented, unknownText)
	}
	if last {
		return c.complete(k)
	}
	return nil
}

// refuse answers a request whose message is wrong or late, before Serve. It returns nil. c.mu is held.
func (c *Conn) refuse(k *Call, last bool, code codes.Code, reason string) *failure {
	id := k.id
	c.appendFailure(k, code, reason)
	if !last {
		c.sendReset(id, http2.ErrCodeNo)
	}
	return nil
}

// complete handles the end of a request. c.mu is held.
func (c *Conn) complete(k *Call) *failure {
	switch {
	case k.head.length >= 0 && k.head.length != int64(k.content):
		return c.breakStream(k, http2.ErrCodeProtocol)
	case k.head.fault != noFault:
		c.answerFault(k)
		return nil
	case k.isOver(c.read):
		c.appendFailure(k, codes.DeadlineExceeded, overText)
		return nil
	case len(k.Message) < prefix:
		c.appendFailure(k, codes.Internal, "the request has no message")
		return nil
	}
	k.zipped = k.Message[0] == 1
	k.Message = k.Message[prefix:]
	k.state = waiting
	c.batch = append(c.batch, k)
	return nil
}
