package h2unary

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/guard"
)

const (
	// maxBlockBytes and maxContinuations bound a header block.
	maxBlockBytes    = 64 << 10
	maxContinuations = 8
	priorityBytes    = 5
)

// fragments collects a header block that has several frames.
type fragments struct {
	open   bool
	stream uint32
	flags  http2.Flags // They are those of HEADERS.
	frames int
	bytes  []byte
}

// receiveHeaders handles HEADERS. c.mu is held.
func (c *Conn) receiveHeaders(f *frame) *failure {
	block, ok := unpad(f)
	if ok && f.flags.Has(http2.FlagHeadersPriority) {
		if ok = len(block) >= priorityBytes; ok {
			if binary.BigEndian.Uint32(block)&^(1<<31) == f.stream {
				return broken(http2.ErrCodeProtocol, "a stream depends on itself")
			}
			block = block[priorityBytes:]
		}
	}
	switch {
	case f.stream == 0 || f.stream%2 == 0:
		return broken(http2.ErrCodeProtocol, "HEADERS of a stream that no client can begin")
	case !ok:
		return broken(http2.ErrCodeProtocol, "HEADERS are shorter than their padding or priority")
	case f.flags.Has(http2.FlagHeadersEndHeaders):
		return c.receiveBlock(f.stream, f.flags, block)
	}
	c.block = fragments{open: true, stream: f.stream, flags: f.flags, bytes: append(c.block.bytes[:0], block...)}
	return nil
}

// receiveContinuation handles CONTINUATION. c.mu is held.
func (c *Conn) receiveContinuation(f *frame) *failure {
	b := &c.block
	if !b.open {
		return broken(http2.ErrCodeProtocol, "CONTINUATION without HEADERS")
	}
	if b.frames++; b.frames > maxContinuations || len(b.bytes)+len(f.payload) > maxBlockBytes {
		return &failure{http2.ErrCodeEnhanceYourCalm, guard.LargeHeaders, "the header block is too large"}
	}
	if failed := c.budget.charge("too many CONTINUATION"); failed != nil {
		return failed
	}
	b.bytes = append(b.bytes, f.payload...)
	if !f.flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	whole := *b
	c.block = fragments{}
	return c.receiveBlock(f.stream, whole.flags, whole.bytes)
}

// receiveBlock handles a complete header block. It also decodes the blocks of streams that are ignored, because later
// blocks depend on them. c.mu is held.
func (c *Conn) receiveBlock(stream uint32, flags http2.Flags, block []byte) *failure {
	if k := c.calls[stream]; k != nil {
		return c.receiveTrailers(k, flags, block)
	}
	if stream <= c.streams.last || c.streams.late(stream) {
		if !c.streams.ignored(stream) {
			return c.headersOfEnded(stream)
		}
		c.streams.last = max(c.streams.last, stream)
		if _, failed := c.decode(block); failed != nil {
			return failed
		}
		return c.budget.charge("too many HEADERS of streams that are ignored")
	}
	c.streams.last = stream
	h, failed := c.decode(block)
	if failed != nil {
		return failed
	}
	ok, failed := c.admit()
	if !ok {
		c.sendReset(stream, http2.ErrCodeRefusedStream)
		return failed
	}
	if h.fault == malformed {
		c.sendReset(stream, http2.ErrCodeProtocol)
		return c.countStreamError()
	}
	c.budget.begin()
	k := c.newCall(stream, h)
	if flags&http2.FlagHeadersEndStream != 0 {
		return c.complete(k)
	}
	return nil
}

// headersOfEnded returns the failure for HEADERS of a stream that the client has ended, or has left out.
func (c *Conn) headersOfEnded(stream uint32) *failure {
	if stream == c.streams.last {
		return broken(http2.ErrCodeStreamClosed, "HEADERS of a stream that has ended")
	}
	return broken(http2.ErrCodeProtocol, "the number of a stream is less than that of an earlier one")
}

// receiveTrailers handles the trailers of a request, which end it. c.mu is held.
func (c *Conn) receiveTrailers(k *Call, flags http2.Flags, block []byte) *failure {
	if k.state == waiting || k.state == parked {
		return c.headersOfEnded(k.id)
	}
	_, failed := c.readBlock(block)
	switch {
	case failed != nil:
		return failed
	case k.state == reset:
		return nil
	case flags&http2.FlagHeadersEndStream == 0 || c.reader.fault == malformed || c.reader.seen != [otherPseudo]bool{}:
		return c.breakStream(k, http2.ErrCodeProtocol)
	}
	if k.head.fault == noFault {
		if code, reason := c.checkPrefix(k, true); code != 0 {
			return c.refuse(k, true, code, reason)
		}
	}
	return c.complete(k)
}

// decode returns what a header block means.
func (c *Conn) decode(block []byte) (head, *failure) {
	if known := c.blocks.find(block); known != nil {
		return *known, nil
	}
	changes, failed := c.readBlock(block)
	if failed != nil {
		return head{}, failed
	}
	h := c.reader.finish()
	if !changes && len(block) <= maxBlock && len(h.kept) == 0 {
		c.blocks.add(block, h)
	}
	return h, nil
}

// readBlock passes the fields of a header block to the reader. changes means that the block changes the dynamic table.
func (c *Conn) readBlock(block []byte) (changes bool, _ *failure) {
	c.reader.reset()
	changes, err := c.decoder.decode(block, c.reader.visit)
	switch {
	case errors.Is(err, errTooLarge):
		return changes, &failure{http2.ErrCodeEnhanceYourCalm, guard.LargeHeaders, err.Error()}
	case err != nil:
		return changes, broken(http2.ErrCodeCompression, err.Error())
	case changes:
		c.blocks.forget()
	}
	return changes, nil
}

// newCall begins a call. c.mu is held.
func (c *Conn) newCall(stream uint32, h head) *Call {
	var k *Call
	if n := len(c.free); n > 0 {
		k = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		k = &Call{conn: c}
	}
	k.id, k.head, k.Method, k.Arrived = stream, h, h.method, c.read
	if h.timeout > 0 {
		k.Deadline = c.read.Add(h.timeout)
	}
	c.calls[stream] = k
	c.most = max(c.most, len(c.calls))
	c.hold(k, perBegun+h.keptBytes())
	return k
}
