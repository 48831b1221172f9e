package h2unary

import (
	"cmp"
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/internal/guard"
)

// prefix is the length of what precedes a message: a flag of compression, and the length of the message.
const prefix = 5

// appendContent takes a piece of the message of a call, at the end of which last is true.
func (c *Conn) appendContent(k *Call, piece []byte, last bool) {
	if k.head.fault != noFault {
		return // The message is not read.
	}
	if last && len(k.buffer) == 0 {
		k.Message = piece // In the usual case the message is in one piece, and stays where it is.
		return
	}
	if len(piece) == 0 {
		return
	}
	before := cap(k.buffer)
	k.buffer = append(k.buffer, piece...)
	if more := cap(k.buffer) - before; more > 0 {
		c.hold(k, int64(more))
		c.grown = true
	}
	k.Message = k.buffer
}

// checkPrefix checks a message as far as it has arrived. It returns codes.OK if nothing is wrong so far.
func (c *Conn) checkPrefix(k *Call, last bool) (codes.Code, string) {
	m := k.Message
	if len(m) < prefix {
		if last {
			return codes.Internal, "the request has no complete message"
		}
		return codes.OK, ""
	}
	length := uint64(binary.BigEndian.Uint32(m[1:]))
	switch {
	case m[0] == 1 && !k.head.zipped:
		return codes.Internal, "the message is compressed without grpc-encoding"
	case m[0] > 1:
		return codes.Internal, "the message has an unknown flag"
	case length > uint64(c.server.cfg.MaxMessage):
		return codes.ResourceExhausted, "the message is too large"
	case uint64(len(m)-prefix) > length:
		return codes.Internal, "the request has more than one message"
	case last && uint64(len(m)-prefix) < length:
		return codes.Internal, "the message is cut off"
	}
	return codes.OK, ""
}

// maxPartial bounds the requests of a connection that have not arrived completely.
const maxPartial = 4 << 20

// boundPartial cuts incomplete requests of a connection that holds too much. c.mu is held.
func (c *Conn) boundPartial() {
	c.grown = false
	partial := int64(0)
	for _, k := range c.calls {
		if k.state == arriving {
			partial += k.held
		}
	}
	if partial > maxPartial {
		c.cutLargest(partial-maxPartial, func(k *Call) bool { return k.state == arriving })
	}
}

// cutLargest resets the largest calls of some until need bytes are free. It returns how much is freed, and how much of
// it is released later, when the calls are answered. c.mu is held.
func (c *Conn) cutLargest(need int64, some func(*Call) bool) (freed, leaving int64) {
	var calls []*Call
	for _, k := range c.calls {
		if k.held > 0 && some(k) {
			calls = append(calls, k)
		}
	}
	slices.SortFunc(calls, func(a, b *Call) int { return cmp.Compare(b.held, a.held) })
	for _, k := range calls {
		if freed >= need {
			break
		}
		freed += k.held
		if k.state == waiting {
			leaving += k.held
		}
		c.guarded.Count(guard.OverBudget)
		c.resetCall(k, http2.ErrCodeEnhanceYourCalm)
	}
	return freed, leaving
}
