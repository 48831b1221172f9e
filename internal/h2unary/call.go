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
	// Deadline is when the client stops waiting. It is the zero time if the client has not stated it.
	Deadline time.Time

	conn *Conn
	id   uint32
	head head

	// conn.mu guards all that follows.
	state callState
	// abandoned means that the client has reset the call.
	abandoned bool
	// received is how many bytes count for flow control, and content how many of DATA have arrived without padding.
	received, content int
	// buffer is the message if it did not come in one piece. zipped means that it arrived compressed.
	buffer []byte
	zipped bool
	// window is what the client allows beyond its initial window. It is negative after an answer was sent.
	window int
	// rest is what flow control holds back.
	rest rest
	// held is how much memory the guard counts for the call.
	held int64
	// begun means that the header of the answer is sent.
	begun  bool
	ctx    context.Context
	cancel context.CancelFunc
}

// callState is who waits for what.
type callState uint8

const (
	arriving callState = iota // The client has not sent all of the request.
	waiting                   // The request is complete, and Serve must answer it.
	reset                     // Serve must answer the request, but the client gets no answer.
	parked                    // The request is answered, and flow control holds back a part of the answer.
)

// Header returns a header that Config.Keep names, or "" if the request has none. It joins several values by commas.
func (k *Call) Header(name string) string {
	var values []string
	for _, h := range k.head.kept {
		if string(h.name) == name {
			values = append(values, string(h.value))
		}
	}
	return strings.Join(values, ",")
}

const overText = "the message did not arrive before the deadline"

// isOver reports whether the time of the client was over at a time.
func (k *Call) isOver(now time.Time) bool { return !k.Deadline.IsZero() && !now.Before(k.Deadline) }

// Context returns a context that ends when the client gives up, at the deadline, and with the answer. The context of a
// stream also ends with the server.
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

// Reply answers with a message. The answer leaves when Serve returns, or with Flush. It returns false if the client has
// gone, so that there is no answer. A reset that the server has not read yet is not known.
func (k *Call) Reply(message []byte) bool {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isAwaited(k) {
		return false
	}
	c.appendReply(k, message)
	return true
}

// Fail answers with an error, as Reply does with a message.
func (k *Call) Fail(code codes.Code, reason string) bool {
	c := k.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isAwaited(k) {
		return false
	}
	c.appendFailure(k, code, reason)
	return true
}

// isAwaited reports whether the client waits for the answer of a call. Otherwise it ends the call. c.mu is held.
func (c *Conn) isAwaited(k *Call) bool {
	if k.state == waiting && !c.closed && !c.output.failed {
		return true
	}
	if k.abandoned {
		c.budget.reset(time.Since(k.Arrived))
	}
	c.remove(k)
	return false
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
