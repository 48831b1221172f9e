package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is a connection to Redis. A reply that has arrived counts, even if nothing has read it before its deadline.
type link struct {
	net.Conn
	socket syscall.RawConn // nil if the connection is no socket
	bound  *bound          // of the replies to the library; nil while a worker reads them
	pool   *Connections    // counts the link; nil for none
	closed atomic.Bool
}

// Connections counts connections to a Redis, its cluster or its sentinels. It is safe for concurrent use.
type Connections struct{ opened, closed atomic.Uint64 }

// Counts returns how many connections were opened, and how many of them this service has closed.
func (c *Connections) Counts() (opened, closed uint64) {
	closed = c.closed.Load() // first, so that it is never more
	return c.opened.Load(), closed
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// linking returns the dialer of options, whose connections are links with a bound. pool counts them, unless it is nil.
func linking(options *redis.UniversalOptions, b bound, pool *Connections) dialer {
	dial := options.Dialer
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: options.DialTimeout, TLSConfig: options.TLSConfig})
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn = newLink(conn, b)
		if pool != nil {
			linkOf(conn).pool = pool
			pool.opened.Add(1)
		}
		return conn, nil
	}
}

func (l *link) Close() error {
	if l.pool != nil && l.closed.CompareAndSwap(false, true) {
		l.pool.closed.Add(1)
	}
	return l.Conn.Close()
}

// newLink returns a link for the connection, with a bound of its own.
func newLink(conn net.Conn, b bound) net.Conn {
	l, outer := &link{Conn: conn, bound: &b}, conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if ok {
		l.socket, _ = socket.SyscallConn() // nil after an error
	}
	if !ok || conn != outer {
		return l
	}
	return checked{l, socket}
}

// checked is a link whose socket the client library sees: it looks at that before it uses a link without TLS again.
type checked struct {
	*link
	syscall.Conn
}

// linkOf returns the link of a connection that newLink has returned.
func linkOf(conn net.Conn) *link {
	if c, ok := conn.(checked); ok {
		return c.link
	}
	return conn.(*link)
}

// Read reads a reply as far as it is within the bound.
func (l *link) Read(b []byte) (int, error) {
	switch {
	case l.bound == nil:
		return l.read(b)
	case l.bound.err != nil: // the library may read again
		return 0, l.bound.err
	}
	n, err := l.read(b)
	if within := l.bound.check(b[:n]); within < n {
		return within, l.bound.err
	}
	return n, err
}

// read reads a reply. If the deadline has passed, but a reply is there, read returns the reply. The timer of the
// deadline fires first if this process has had no CPU.
func (l *link) read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !l.unread() {
		return n, err
	}
	if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return l.Conn.Read(b)
}

// quiet reports whether the connection is open, as far as that is known here, and nothing has arrived on it.
func (l *link) quiet() bool {
	if l.socket == nil {
		return true
	}
	_, secure := l.Conn.(*tls.Conn) // TLS has messages of its own
	err := l.peek()
	return errors.Is(err, syscall.EAGAIN) || err == nil && secure
}

// unread reports whether data has arrived that nothing has read.
func (l *link) unread() bool { return l.socket != nil && l.peek() == nil }

// peek returns nil if a byte has arrived that nothing has read, and syscall.EAGAIN if none has.
func (l *link) peek() (err error) {
	closed := l.socket.Control(func(fd uintptr) {
		var b [1]byte
		var n int
		if n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT); n == 0 {
			err = io.EOF
		}
	})
	return cmp.Or(closed, err)
}
