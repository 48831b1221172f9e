package telemetry

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	dialTimeout  = 1500 * time.Millisecond
	writeTimeout = time.Second
	// lossLogged is how often the log repeats that the server cannot be reached.
	lossLogged = time.Hour
)

var (
	errNotConnected = errors.New("not connected")
	errClosed       = errors.New("it has closed the connection")
)

// link is the connection to a statsd server. It is an io.WriteCloser that never connects by itself.
type link struct {
	network, address string
	log              *slog.Logger
	level            slog.Level
	up               atomic.Bool

	mu     sync.Mutex
	conn   net.Conn // nil without a connection
	logged time.Time
}

func newLink(cfg StatsdConfig) *link {
	return &link{network: cfg.Network, address: cfg.Address, log: cfg.Log, level: cfg.Level}
}

// connect connects if there is no connection. Only one goroutine may call it.
func (l *link) connect(ctx context.Context) {
	if l.up.Load() {
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, l.network, l.address)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			l.lost(err)
		}
		return
	}
	l.conn = conn
	l.up.Store(true)
	if l.network == "tcp" {
		go l.watch(conn) // it ends with the connection
	}
}

// watch drops the connection once the server has closed it. A write would succeed once more, and its lines be lost.
func (l *link) watch(conn net.Conn) {
	_, err := io.Copy(io.Discard, conn) // a statsd server sends nothing
	if err == nil {
		err = errClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.lost(err)
	}
}

// Write sends lines. If it fails, the connection is lost.
func (l *link) Write(lines []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0, errNotConnected
	}
	err := l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	n := 0
	if err == nil {
		n, err = l.conn.Write(lines)
	}
	if err != nil {
		l.lost(err)
	}
	return n, err
}

// Close closes the connection.
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up.Store(false)
	if l.conn == nil {
		return nil
	}
	conn := l.conn
	l.conn = nil
	return conn.Close()
}

// lost drops the connection and logs it. The mutex must be held. The log does not show the address, which may be a
// secret in the wrong variable.
func (l *link) lost(err error) {
	l.up.Store(false)
	if l.conn != nil {
		_ = l.conn.Close() // it has failed already
		l.conn = nil
	}
	if !l.logged.IsZero() && time.Since(l.logged) < lossLogged {
		return
	}
	l.logged = time.Now()
	reason := "no answer"
	var unknown *net.DNSError
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		reason = number.Error()
	} else if errors.As(err, &unknown) {
		reason = "the host has no address"
	} else if errors.Is(err, errClosed) {
		reason = errClosed.Error()
	}
	l.log.Log(context.Background(), l.level, "the statsd server cannot be reached; statistics are sent once it can "+
		"(logged once an hour; set STATSD_HOST and STATSD_PORT, or USE_STATSD=false)", "network", l.network, "reason", reason)
}
