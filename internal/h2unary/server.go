package h2unary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/extauthz/extauthz/internal/guard"
)

// Config are the settings of a server.
type Config struct {
	// Methods are the paths of the methods, "/package.Service/Method".
	Methods []string
	// Streams has the methods whose answers are streams of messages (Call.Send).
	Streams map[string]bool
	// Serve answers the calls that one read of a connection has completed, in the order in which they arrived. It runs in
	// the goroutine that reads the connection. A call that has to wait must be answered by another goroutine, which then
	// calls Flush or FlushSoon. Required.
	Serve func(c *Conn, calls []*Call)
	// Panicked is called with the value of a panic, also of one in Serve, which ends the connection. Required.
	Panicked func(value any)
	// Keep has the names of headers that Call.Header returns. All others are forgotten.
	Keep []string
	// MaxStreams is the maximum number of requests in flight on a connection. Required.
	MaxStreams int
	// MaxMessage is the largest message of a client, in bytes. Required.
	MaxMessage int
	// MaxAge is the age at which the server asks a client to close its connection. It varies by a tenth. MaxAgeGrace is
	// the time after which the server closes it. 0 means never.
	MaxAge, MaxAgeGrace time.Duration
	// ConnectTimeout bounds the time from Accept to the first SETTINGS, with the handshake of TLS. Required.
	ConnectTimeout time.Duration
}

// Server serves connections. Use New.
type Server struct {
	cfg     Config
	methods map[string]int
	keep    map[string]bool
	streams []bool    // The index is that of the method.
	buffers sync.Pool // It has *[readBuffer]byte.
	outputs sync.Pool // It has *[writeBuffer]byte.

	mu       sync.Mutex
	listener *guard.Listener
	conns    map[*Conn]struct{}
	stopping bool
	ended    sync.WaitGroup // It waits for the connections.
}

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, methods: make(map[string]int), keep: make(map[string]bool), conns: make(map[*Conn]struct{})}
	for i, path := range cfg.Methods {
		s.methods[path] = i
		s.streams = append(s.streams, cfg.Streams[path])
	}
	for _, name := range cfg.Keep {
		s.keep[name] = true
	}
	s.buffers.New = func() any { return new([readBuffer]byte) }
	s.outputs.New = func() any { return new([writeBuffer]byte) }
	return s
}

// Serve accepts connections until Shutdown, and returns http.ErrServerClosed then. The listener must be Metered.
func (s *Server) Serve(l *guard.Listener) error {
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	wait := time.Duration(0)
	for !s.isStopping() {
		nc, err := l.Accept()
		if err == nil {
			wait = 0
			s.start(nc.(*guard.Conn))
			continue
		}
		if s.isStopping() {
			break
		}
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() && errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept: %w", err)
		}
		// The process may have too many open files. Connections that end make room.
		wait = min(max(2*wait, minAcceptWait), maxAcceptWait)
		time.Sleep(wait)
	}
	return http.ErrServerClosed
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

const (
	minAcceptWait = 5 * time.Millisecond
	maxAcceptWait = time.Second
)

func (s *Server) start(nc *guard.Conn) {
	c := newConn(s, nc)
	nc.Attach(c)
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = nc.Close() // The client finds out by itself.
		return
	}
	s.conns[c] = struct{}{}
	s.ended.Go(func() {
		c.run()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
	s.mu.Unlock()
}

// Shutdown asks all clients to end their connections, answers the requests that they have sent, and returns when all
// connections have ended, or when ctx is done. Then it cuts off the others.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.stopping = true
	l := s.listener
	s.mu.Unlock()
	if l != nil {
		_ = l.Close() // An error means that it is closed already.
	}
	for _, c := range s.open() {
		c.drain("graceful_stop")
	}
	stop := context.AfterFunc(ctx, func() {
		for _, c := range s.open() {
			c.guarded.Abort()
		}
	})
	defer stop()
	s.ended.Wait()
}

// open returns the open connections.
func (s *Server) open() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}
