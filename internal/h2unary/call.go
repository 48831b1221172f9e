package h2unary

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Call is a request. From Serve until its answer, it belongs to the function that answers it, and must not be used
// after that. It must be answered exactly once: by Reply, or by Fail.
type Call struct {
	// Method is the index of its method in Config.Methods.
	Method int
	// Message is the request. It is valid until Serve returns.
	Message []byte
	// Arrived is when the read that began the request returned.
	Arrived time.Time
	// Deadline is when the client stops to wait, the zero time if it has not stated it.
	Deadline time.Time

	conn *Conn
	id   uint32
	head head

	// All that follows is guarded by conn.mu.
	state     callState
	abandoned bool   // The client has reset it.
	received  int    // Bytes that count for flow control.
	content   int    // Bytes of DATA without padding.
	buffer    []byte // The message, if it did not come in one piece.
	zipped    bool   // The message arrived compressed.
	window    int    // What the client allows beyond its initial window. It is negative after an answer was sent.
	rest      rest   // What flow control holds back.
	held      int64  // What the guard counts for it.
	begun     bool   // The header of the answer is sent.
	ctx       context.Context
	cancel    context.CancelFunc
}

// callState is who waits for what.
type callState uint8

const (
	arriving callState = iota // The client has not sent all.
	waiting                   // It is complete, and Serve must answer it.
	reset                     // As waiting, but the client gets no answer.
	parked                    // It is answered, and flow control holds back a part.
)

// Header returns a header that Config.Keep names, "" if the request has none. Several ones are joined by commas.
func (k *Call) Header(name string) string {
	var values []string
	for _, h := range k.head.kept {
		if h.Name == name {
			values = append(values, h.Value)
		}
	}
	return strings.Join(values, ",")
}

// Context returns a context that ends when the client gives up, at the deadline, and with the answer. That of a stream
// also ends with the server.
func (k *Call) Context() context.Context {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.ctx == nil {
		if k.Deadline.IsZero() {
			k.ctx, k.cancel = context.WithCancel(context.Background())
		} else {
			k.ctx, k.cancel = context.WithDeadline(context.Background(), k.Deadline)
		}
		if k.state == reset || c.closed || c.drainer.final && c.server.streams[k.Method] {
			k.cancel()
		}
	}
	return k.ctx
}

// Reply answers with a message. The answer leaves when Serve returns, or with Flush.
func (k *Call) Reply(message []byte) {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.state == waiting && !c.closed {
		c.appendReply(k, message)
		return
	}
	c.drop(k)
}

// Fail answers with an error. The answer leaves when Serve returns, or with Flush.
func (k *Call) Fail(code codes.Code, reason string) {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.state == waiting && !c.closed {
		c.appendFailure(k, code, reason)
		return
	}
	c.drop(k)
}

// drop ends a call whose client no longer waits. c.mu is held.
func (c *Conn) drop(k *Call) {
	if k.abandoned {
		c.budget.reset(time.Since(k.Arrived))
	}
	c.remove(k)
}

// Send sends a message of a stream. Fail ends the stream. It returns false if the client has gone, or does not read.
func (k *Call) Send(message []byte) bool {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.state != waiting || c.closed || len(k.rest.data) > maxMessages {
		return false
	}
	c.appendMessage(k, message)
	return true
}
