package h2unary_test

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
)

// The methods of the server of the tests.
const (
	echoMethod  = "/test.Echo/Echo"  // answers with the message
	laterMethod = "/test.Echo/Later" // answers with it when release is closed
	failMethod  = "/test.Echo/Fail"  // answers with RESOURCE_EXHAUSTED and the message
	watchMethod = "/test.Echo/Watch" // a stream
	panicMethod = "/test.Echo/Panic"
	pauseMethod = "/test.Echo/Pause" // answers with the message after some milliseconds
	stuckMethod = "/test.Echo/Stuck" // answers when release is closed, also if the client has gone
	queueMethod = "/test.Echo/Queue" // answers with it from one goroutine for all connections
)

// server is a running server.
type server struct {
	*h2unary.Server
	*guard.Listener
	release chan struct{}
	queue   chan func()
	// stopClock ends the clock of the guard, as if the process stood still.
	stopClock context.CancelFunc
	panics    atomic.Int64
	begun     atomic.Int64 // calls of stuckMethod
}

// start starts a server on loopback until the test ends.
func start(t testing.TB, change func(*h2unary.Config), secured func(net.Listener) net.Listener) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, l, change, secured)
}

func startOn(
	t testing.TB, l net.Listener, change func(*h2unary.Config), secured func(net.Listener) net.Listener,
) *server {
	t.Helper()
	if secured != nil {
		l = secured(l)
	}
	s := &server{Listener: guard.New(l, guard.Config{Connections: 100, Bytes: 64 << 20, Metered: true})}
	s.release, s.queue = make(chan struct{}), make(chan func(), 100)
	go func() {
		for answer := range s.queue {
			answer()
		}
	}()
	cfg := h2unary.Config{
		Methods: []string{
			echoMethod, laterMethod, failMethod, watchMethod, panicMethod, pauseMethod, stuckMethod, queueMethod,
		},
		Streams: map[string]bool{watchMethod: true}, Serve: s.serve,
		Panicked:   func(any) { s.panics.Add(1) },
		MaxStreams: 1024, MaxMessage: 1 << 20, ConnectTimeout: 5 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	s.Server = h2unary.New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	go s.Run(ctx)
	s.stopClock = stop
	served := make(chan error, 1)
	go func() { served <- s.Serve(s.Listener) }()
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(over)
		if err := <-served; err != http.ErrServerClosed { //nolint:errorlint // it is returned as it is
			t.Errorf("Serve returned %v", err)
		}
		stop()
		close(s.queue)
	})
	return s
}

func (s *server) serve(c *h2unary.Conn, calls []*h2unary.Call) {
	for _, k := range calls {
		switch k.Method {
		case 0:
			k.Reply(k.Message)
		case 1:
			message := string(k.Message)
			go func() {
				select {
				case <-s.release:
					k.Reply([]byte(message))
				case <-k.Context().Done():
					k.Fail(4, "too late")
				}
				c.Flush()
			}()
		case 2:
			k.Fail(8, string(k.Message))
		case 3:
			message := string(k.Message)
			go func() {
				ctx := k.Context()
				for range 3 {
					k.Send([]byte(message))
					c.Flush()
				}
				<-ctx.Done()
				k.Fail(14, "over")
				c.Flush()
			}()
		case 4:
			panic("test")
		case 5:
			message := string(k.Message)
			time.AfterFunc(5*time.Millisecond, func() {
				k.Reply([]byte(message))
				c.Flush()
			})
		case 6:
			s.begun.Add(1)
			go func() {
				<-s.release
				k.Reply(nil)
			}()
		case 7:
			message := string(k.Message)
			s.queue <- func() {
				k.Reply([]byte(message))
				c.FlushSoon()
			}
		}
	}
}
