package h2unary

import (
	"slices"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/guard"
)

// failure is why a connection ends: the GOAWAY for the client, and the reason for the metric.
type failure struct {
	code   http2.ErrCode
	reason guard.Reason
	debug  string
}

// broken returns the failure of a client that does not follow HTTP/2.
func broken(code http2.ErrCode, debug string) *failure { return &failure{code, guard.Protocol, debug} }

// rememberedResets is for how many streams that the server has reset its client may still be sending.
const rememberedResets = 100

// hardStreams bounds the requests in flight while a client may not know the limit.
const hardStreams = 4096

// streamNumbers is what is known of streams that are no calls.
type streamNumbers struct {
	// last is the largest stream that the client has begun.
	last uint32
	// end is the last stream that is served: lastStreamUnknown until the second GOAWAY.
	end uint32

	// resets has the last streams that the server has ended before the client did. next is the index of the oldest one.
	resets [rememberedResets]uint32
	next   int
}

// idle reports whether the client has not begun a stream yet.
func (s *streamNumbers) idle(stream uint32) bool { return stream > s.last || stream%2 == 0 }

// sendReset resets a stream before the client has ended it. c.mu is held.
func (c *Conn) sendReset(stream uint32, code http2.ErrCode) {
	c.output.add(appendReset(c.output.next(), stream, code))
	s := &c.streams
	s.resets[s.next] = stream
	s.next = (s.next + 1) % rememberedResets
}

// late reports whether the client began a stream after the second GOAWAY.
func (s *streamNumbers) late(stream uint32) bool { return stream > s.end }

// ignored reports whether frames of a stream without a call are ignored.
func (s *streamNumbers) ignored(stream uint32) bool {
	return s.late(stream) || slices.Contains(s.resets[:], stream)
}

// admit reports whether the client may begin one more request. A client that does not know the limit yet gets more. So
// does one that cannot see that the server still works on requests that were reset. c.mu is held.
func (c *Conn) admit() (ok bool, failed *failure) {
	if len(c.calls) < c.server.cfg.MaxStreams {
		return true, nil
	}
	open := len(c.calls) - c.resets
	switch {
	case len(c.calls) >= max(hardStreams, 2*c.server.cfg.MaxStreams):
	case open < c.server.cfg.MaxStreams, c.started < sentAck:
		return true, nil
	}
	c.guarded.Count(guard.TooManyStreams)
	if open < c.server.cfg.MaxStreams {
		return false, nil
	}
	return false, c.countStreamError()
}
