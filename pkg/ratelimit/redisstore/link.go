package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// links are the open connections to one Redis.
type links struct {
	mu   sync.Mutex
	open map[*link]struct{}
}

// link is a connection to Redis. A reply that has arrived counts, even if nothing has read it before its deadline.
type link struct {
	net.Conn
	socket syscall.RawConn // nil if the connection is no socket
	links  *links
}

// dialer returns the dialer of options, whose connections are links.
func (l *links) dialer(options *redis.UniversalOptions) func(context.Context, string, string) (net.Conn, error) {
	dial := options.Dialer
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: options.DialTimeout, TLSConfig: options.TLSConfig})
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return l.add(conn), nil
	}
}

// add returns a link for the connection.
func (l *links) add(conn net.Conn) net.Conn {
	added := &link{Conn: conn, links: l}
	outer := conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if ok {
		added.socket, _ = socket.SyscallConn() // nil after an error
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*link]struct{}{}
	}
	l.open[added] = struct{}{}
	if !ok || conn != outer {
		return added
	}
	return checked{added, socket}
}

// checked is a link of which the client library sees the socket. The library looks at it before it uses a connection
// again, except for TLS.
type checked struct {
	*link
	syscall.Conn
}

// linkOf returns the link of a connection that add has returned.
func linkOf(conn net.Conn) *link {
	if c, ok := conn.(checked); ok {
		return c.link
	}
	return conn.(*link)
}

// Close closes the connection.
func (l *link) Close() error {
	l.links.mu.Lock()
	delete(l.links.open, l)
	l.links.mu.Unlock()
	return l.Conn.Close()
}

// Read reads a reply. If the deadline has passed, but a reply is there, Read returns the reply. The timer of the
// deadline fires first if this process has had no CPU.
func (l *link) Read(b []byte) (int, error) {
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

// unread reports whether data has arrived on a connection that nothing has read.
func (l *links) unread() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.unread() {
			return true
		}
	}
	return false
}
