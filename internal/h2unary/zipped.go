package h2unary

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
)

// Bounds of a compressed message. One byte of gzip can stand for a thousand. So a small message may grow to
// smallUnzipped bytes, and a larger one to maxRatio times its size. Requests of clients that compress stay far below.
const (
	smallUnzipped = 64 << 10
	maxRatio      = 16
)

// unzippers are *gzip.Reader. Each takes some 40 kB.
var unzippers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// unzipLast replaces the message of the last call of the batch, if it is compressed. That takes time, so c.mu is not
// held. A compressed message is always the last of its batch, because many in one read would take much memory. One that
// is refused counts as a broken request, because it has cost the server more than the client.
func (c *Conn) unzipLast() *failure {
	last := len(c.batch) - 1
	k := c.batch[last]
	if !k.zipped {
		return nil
	}
	message, code, reason := c.unzip(k.Message)
	c.mu.Lock()
	defer c.mu.Unlock()
	if code == codes.OK {
		c.hold(k, int64(cap(message)-cap(k.buffer)))
		k.Message, k.buffer = message, message
		return nil
	}
	c.batch[last] = nil
	c.batch = c.batch[:last]
	if k.state == waiting {
		c.appendFailure(k, code, reason)
	} else {
		c.remove(k)
	}
	return c.countStreamError()
}

// unzip returns a message that arrived compressed.
func (c *Conn) unzip(zipped []byte) (message []byte, code codes.Code, reason string) {
	most := min(c.server.cfg.MaxMessage, max(smallUnzipped, maxRatio*len(zipped)))
	z := unzippers.Get().(*gzip.Reader)
	defer unzippers.Put(z)
	err := z.Reset(bytes.NewReader(zipped))
	if err == nil {
		message, err = io.ReadAll(io.LimitReader(z, int64(most)+1))
	}
	switch {
	case len(message) > most:
		return nil, codes.ResourceExhausted, "the message is too large when it is not compressed"
	case err != nil:
		return nil, codes.Internal, "the message is not valid gzip"
	}
	return message, codes.OK, ""
}
