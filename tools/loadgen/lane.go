package loadgen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// lane keeps one connection busy. If the connection ends, it opens another one.
type lane struct {
	m     *measurement
	index int
	most  int    // requests in flight
	seed  uint64 // of its keys and headers

	mu       sync.Mutex // held by the reader, except while it waits for answers
	session  *session   // nil while there is no connection
	now      time.Duration
	begun    int64 // requests so far
	budget   int64 // of requests
	draw     func() uint64
	message  []byte // with the last key
	places   []int
	batch    []outcome // answers since the last settle
	lastDone time.Duration
}

// next returns the time from which the next request counts, and false if none is due.
func (l *lane) next() (due time.Duration, ok bool) {
	due = l.now
	if l.m.plan.Rate > 0 {
		due = l.m.plan.due(l.index, l.begun)
	}
	if due > l.now || due >= l.m.end() || l.begun >= l.budget {
		return 0, false
	}
	l.begun++
	return due, true
}

// spent reports whether the lane begins no more requests.
func (l *lane) spent(now time.Duration) bool { return l.begun >= l.budget || now >= l.m.end() }

// withKey returns the message with another key. It is valid until the next call.
func (l *lane) withKey() []byte {
	if len(l.places) > 0 {
		key := l.draw()
		for _, at := range l.places {
			putKey(l.message[at:at+keyDigits], key)
		}
	}
	return l.message
}

// settle hands the answers since the last call to the tally.
func (l *lane) settle() {
	if len(l.batch) > 0 {
		l.m.tally.add(l.batch)
		l.batch = l.batch[:0]
	}
}

// poke sends what is due, if there is a connection.
func (l *lane) poke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		return
	}
	l.now = l.m.clock()
	l.session.push()
}

// tend gives up requests that wait for too long. It reports whether the lane has nothing more to do.
func (l *lane) tend() (idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.m.clock()
	if l.session == nil {
		return l.spent(l.now)
	}
	l.session.expire()
	l.session.push()
	return l.spent(l.now) && len(l.session.requests) == 0
}

// stop closes the connection.
func (l *lane) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		_ = l.session.conn.Close() // no request is in flight
	}
}

// pause is the time between two attempts to connect.
const pause = 100 * time.Millisecond

// keep serves the first connection and those after it, until ctx is done.
func (l *lane) keep(ctx context.Context, s *session) {
	for {
		l.mu.Lock()
		l.session, l.now = s, l.m.clock()
		if ctx.Err() != nil { // stop came before
			_ = s.conn.Close() // no request is in flight
		}
		var err error
		for err == nil {
			err = s.step()
		}
		l.session = nil
		l.settle()
		_ = s.conn.Close() // the error is that of step
		if ctx.Err() == nil {
			for _, r := range s.requests {
				s.fail(r, unavailable(fmt.Sprintf("the connection ended: %v", err)))
			}
		}
		worked := s.answered
		l.mu.Unlock()
		for s = nil; s == nil && ctx.Err() == nil; worked = false {
			if !worked && !sleep(ctx, pause) {
				return
			}
			l.m.tally.reconnect()
			if s, err = l.open(ctx); err != nil && ctx.Err() == nil {
				l.m.tally.fail(unavailable(err.Error()))
			}
		}
		if s == nil {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) (passed bool) {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// open opens a connection and awaits the settings of the server.
func (l *lane) open(ctx context.Context) (s *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.m.plan.Timeout)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s does not answer: %w: check the address, and whether the service has TLS", l.m.plan.Address, err)
		}
	}()
	conn, err := l.m.plan.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // which ends a read
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	s = newSession(l, conn)
	for !s.settled && err == nil {
		err = s.step()
	}
	if err == nil {
		err = s.flush() // acknowledges the settings
	}
	if err == nil {
		return s, nil
	}
	_ = conn.Close() // the error is that of step
	if ctx.Err() != nil {
		err = fmt.Errorf("no HTTP/2 settings within %s", l.m.plan.Timeout)
	}
	return nil, err
}

// authority is the name of the server in requests.
func (p *Plan) authority() string {
	if strings.HasPrefix(p.Address, "unix:") {
		return "localhost"
	}
	return p.Address
}

func (p *Plan) dial(ctx context.Context) (net.Conn, error) {
	network, address := "tcp", p.Address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	if p.TLS == nil {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	cfg := p.TLS.Clone()
	cfg.NextProtos = []string{"h2"}
	if network == "unix" {
		cfg.ServerName = cmp.Or(cfg.ServerName, p.authority())
	}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if conn.(*tls.Conn).ConnectionState().NegotiatedProtocol != "h2" {
		_ = conn.Close() // useless without HTTP/2
		return nil, errors.New("the server does not offer HTTP/2 (ALPN h2)")
	}
	return conn, nil
}
