package redisstore

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// connection is a connection of a worker. The client library makes it, with all it takes: addresses, TLS, the login,
// the database, the question who the server is. Then only the worker uses its link.
type connection struct {
	target *target
	link   *link
	client redis.UniversalClient // has no other connection
}

type attempt struct {
	connection
	err    error         // proves that no script has run
	over   chan struct{} // closed at the end
	cancel context.CancelFunc
}

// libraryBuffers is the size of the buffers of the client library, which are used while it connects only.
const libraryBuffers = 1 << 10

// connect begins to connect to the target of the node. That takes at most two dials and the wait for one reply.
func (n *node) connect(ctx context.Context) *attempt {
	t := n.target.Load()
	var last atomic.Pointer[link]
	options := *t.options
	options.PoolSize, options.ReadBufferSize, options.WriteBufferSize = 1, libraryBuffers, libraryBuffers
	options.ReadTimeout, options.WriteTimeout = -1, -1 // ctx ends the whole attempt
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := t.options.Dialer(ctx, network, addr)
		if err == nil {
			last.Store(linkOf(conn))
		}
		return conn, err
	}
	client := redis.NewClient(options.Simple())
	a := &attempt{connection: connection{target: t, client: client}, over: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, 2*n.cfg.DialTimeout+max(n.cfg.Timeout, patience))
	a.cancel = cancel
	go func() {
		defer close(a.over)
		defer cancel()
		// The connection is never given back, so that the library does not use it again.
		err := client.Conn().Ping(ctx).Err()
		if err == nil {
			a.link = last.Load()
			a.link.bound = nil // the worker bounds the replies by what it asks
			err = a.link.SetDeadline(time.Time{})
		}
		if err == nil {
			return
		}
		a.close()
		if a.err = err; !notRun(err) {
			a.err = fmt.Errorf("%w: %w", errNotConnected, err)
		}
	}()
	return a
}

// past reports whether an attempt that was made for earlier calls has failed, or its connection has ended since. That
// may be long ago, so it says nothing about Redis now.
func (a *attempt) past() bool {
	select {
	case <-a.over:
		return a.err != nil || !a.link.quiet()
	default:
		return false
	}
}

func (c *connection) close() { _ = c.client.Close() }

// errConnecting means that an attempt to connect goes on.
var errConnecting = fmt.Errorf("%w yet: %w", errNotConnected, os.ErrDeadlineExceeded)

// connect waits for a connection to the target of the node. If it is late, the attempt goes on for the next calls.
func (w *worker) connect(ctx context.Context, end time.Time) (connection, error) {
	late := time.NewTimer(time.Until(end))
	defer late.Stop()
	if w.attempt != nil && w.attempt.past() {
		w.forget()
	}
	for {
		if w.attempt == nil {
			w.attempt = w.node.connect(ctx)
		}
		a := w.attempt
		select {
		case <-late.C:
			return connection{}, errConnecting
		case <-ctx.Done():
			return connection{}, ctx.Err()
		case <-a.target.replaced:
			w.forget()
			continue
		case <-a.over:
			w.attempt = nil
		}
		if a.target == w.node.target.Load() {
			return a.connection, a.err
		}
		a.close()
	}
}

// forget ends the attempt to connect, if there is one.
func (w *worker) forget() {
	if a := w.attempt; a != nil {
		a.cancel()
		a.close()
		<-a.over
		w.attempt = nil
	}
}
