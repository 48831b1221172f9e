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
var unzippers sync.Pool

// unzip replaces the compressed message of a call. c.mu is held.
func (c *Conn) unzip(k *Call, zipped []byte) (codes.Code, string) {
	most := min(c.server.cfg.MaxMessage, max(smallUnzipped, maxRatio*len(zipped)))
	z, ok := unzippers.Get().(*gzip.Reader)
	if !ok {
		z = new(gzip.Reader)
	}
	defer unzippers.Put(z)
	err := z.Reset(bytes.NewReader(zipped))
	var message []byte
	if err == nil {
		message, err = io.ReadAll(io.LimitReader(z, int64(most)+1))
	}
	switch {
	case len(message) > most:
		return codes.ResourceExhausted, "the message is too large when it is not compressed"
	case err != nil:
		return codes.Internal, "the message is not valid gzip"
	}
	c.hold(k, int64(cap(message)-cap(k.buffer)))
	k.Message, k.buffer = message, message
	return codes.OK, ""
}
