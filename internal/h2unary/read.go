package h2unary

import (
	"errors"
	"io"
	"syscall"
)

const (
	// readBuffer holds many requests and any frame. A connection has one only while it reads, or waits for its client.
	readBuffer = 32 << 10
	// smallBuffer is what a connection with TLS waits with, because crypto/tls needs memory. It holds a usual read.
	smallBuffer = 2 << 10
)

// input is the bytes of a client that are not parsed.
type input struct {
	// shared is nil while the connection has no large buffer, and small is nil without TLS.
	shared *[readBuffer]byte
	small  []byte
	// full means that the last read with TLS filled the buffer, so that more may be there.
	full bool
	// from and to are the indexes in the buffer of what is not parsed.
	from, to int

	// try is one attempt to read, for raw. err is its error.
	try func(fd uintptr) bool
	err error
}

// open finds out how to read.
func (in *input) open(c *Conn) {
	if system, ok := c.guarded.Conn.(syscall.Conn); ok {
		if raw, err := system.SyscallConn(); err == nil {
			c.raw = raw
			in.try = func(fd uintptr) bool { return in.tryRead(c, int(fd)) }
			return
		}
	}
	in.small = make([]byte, smallBuffer)
}

func (in *input) buffer() []byte {
	if in.shared != nil {
		return in.shared[:]
	}
	return in.small
}

// data returns the bytes that are not parsed.
func (in *input) data() []byte { return in.buffer()[in.from:in.to] }

// fill reads at least one byte. It first moves the bytes that are not parsed to the start of the buffer.
func (in *input) fill(c *Conn) error {
	if in.from > 0 {
		b := in.buffer()
		in.to = copy(b, b[in.from:in.to])
		in.from = 0
	}
	if c.raw != nil {
		if err := c.raw.Read(in.try); err != nil {
			return err
		}
		return in.err
	}
	switch {
	case in.to == 0 && !in.full:
		in.close(c)
	case in.shared == nil && (in.full || in.to == smallBuffer): // A frame may not fit into the small buffer.
		small := in.data()
		in.shared = c.server.buffers.Get().(*[readBuffer]byte)
		copy(in.shared[:], small)
	}
	free := in.buffer()[in.to:]
	n, err := c.guarded.Read(free)
	in.to += n
	in.full = n == len(free)
	if n > 0 {
		return nil
	}
	return err
}

// tryRead reads, and returns false if nothing has arrived. It needs a buffer only while it reads.
func (in *input) tryRead(c *Conn, fd int) bool {
	if in.shared == nil {
		in.shared = c.server.buffers.Get().(*[readBuffer]byte)
	}
	for {
		n, err := syscall.Read(fd, in.shared[in.to:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			if in.to == 0 {
				in.close(c)
			}
			return false
		case err == nil && n == 0:
			err = io.EOF
		}
		in.err = err
		in.to += max(0, n)
		return true
	}
}

// drop removes the first n bytes of data.
func (in *input) drop(n int) {
	in.from += n
	if in.from == in.to {
		in.from, in.to = 0, 0
	}
}

// close returns the shared buffer. It must have no data.
func (in *input) close(c *Conn) {
	if in.shared != nil {
		c.server.buffers.Put(in.shared)
		in.shared = nil
	}
}
