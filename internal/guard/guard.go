// Package guard bounds what the clients of a port can make the service hold: connections, memory and time. It wraps a
// listener and reads along: over HTTP/2 the frames, over HTTP/1 the requests and answers. The servers behind it bound
// one message, one header list or the streams of one connection; none of them bounds their sum.
//
// When a bound is reached, the guard takes from the source address that holds the most. So a client that holds much
// hurts only itself. A new connection, such as that of a probe, is always accepted.
package guard

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config are the bounds of a port.
type Config struct {
	// Connections is how many may be open at once. One more closes the one that has been idle longest, of the source with
	// the most.
	Connections int
	// Bytes is how much memory requests may take that have begun to arrive and have not been answered, by an estimate that
	// is meant to be too high. Beyond it, the largest requests of the source with the most are reset, the oldest first of
	// equals.
	Bytes int64
	// HTTP2 says that clients speak HTTP/2 from the first byte; else they speak HTTP/1.
	HTTP2 bool
}

// Bounds of time, for each request and connection. No Envoy comes near them: it sends a request at once, and waits for
// an answer for a second at most, or for as long as a max_delay, which is at most a minute.
const (
	maxReceive = 10 * time.Second // from the first byte of a request to its last
	maxAnswer  = 90 * time.Second // from then until the client has taken the answer
	maxWrite   = 10 * time.Second // for one write
	maxCut     = time.Second      // for a reset to be noticed by the server
)

// tick is the grain of the clock: the current time would have to be asked for with each request.
const tick = 100 * time.Millisecond

// A Reason says why the guard closed a connection or reset a request.
type Reason int

// The reasons.
const (
	// Displaced is a connection that had to go for a new one.
	Displaced Reason = iota
	// OverBudget is a request that had to go because all together took too much memory.
	OverBudget
	// SlowRequest is a request that did not arrive in time, SlowAnswer one whose answer was not taken in time.
	SlowRequest
	SlowAnswer
	// Flood is a connection with too many frames that ask nothing.
	Flood
	reasons
)

func (r Reason) String() string {
	return [...]string{"displaced", "over_budget", "slow_request", "slow_answer", "flood"}[r]
}

// Reasons are all reasons.
func Reasons() []Reason { return []Reason{Displaced, OverBudget, SlowRequest, SlowAnswer, Flood} }

// Listener is a guarded listener. Run has to run for as long as connections of it are served.
type Listener struct {
	net.Listener
	cfg     Config
	now     atomic.Int64 // in ticks
	held    atomic.Int64 // the sum of all connections
	leaving atomic.Int64
	cuts    [reasons]atomic.Uint64

	relieving sync.Mutex

	mu      sync.Mutex
	members map[netip.Prefix]map[*conn]struct{}
	count   int
}

// New returns a guarded listener.
func New(l net.Listener, cfg Config) *Listener {
	return &Listener{Listener: l, cfg: cfg, members: make(map[netip.Prefix]map[*conn]struct{})}
}

// Run keeps time until ctx is done.
func (l *Listener) Run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.sweep(l.now.Add(1))
		}
	}
}

// Connections is how many are open.
func (l *Listener) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Held is the estimate of the memory that requests take now.
func (l *Listener) Held() int64 { return l.held.Load() + l.leaving.Load() }

// Cuts is how many connections were closed and requests reset for a reason.
func (l *Listener) Cuts(r Reason) uint64 { return l.cuts[r].Load() }

// Accept implements net.Listener. It waits while the server has yet to notice that connections were cut which hold as
// much again as the budget.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for l.Held() > 2*l.cfg.Bytes {
		time.Sleep(time.Millisecond)
	}
	if l.cfg.HTTP2 {
		h := newHTTP2()
		l.admit(&h.conn, h, c)
		return h, nil
	}
	h := new(http1Conn)
	l.admit(&h.conn, h, c)
	return h, nil
}

// source is what shares a bound: an IPv4 address, or an IPv6 network of 64 bits, of which one client has all addresses.
// Clients on a Unix socket are one source.
func source(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	const network = 64
	ip := tcp.AddrPort().Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = network
	}
	p, _ := ip.WithZone("").Prefix(bits) // the zero value of what has no address
	return p
}

// requests are those of a connection, of either kind.
type requests interface {
	// shed cuts requests until as much is free, if there are any, and returns how much is.
	shed(need int64) int64
	// sweep cuts what takes too long.
	sweep(now int64)
}

// admit makes c the guarded form of a connection with these requests.
func (l *Listener) admit(c *conn, r requests, unguarded net.Conn) {
	c.Conn, c.requests, c.l, c.from = unguarded, r, l, source(unguarded.RemoteAddr())
	c.last.Store(l.now.Load())
	l.mu.Lock()
	var victim *conn
	if l.count >= l.cfg.Connections {
		victim = l.victim(c.from)
	}
	if l.members[c.from] == nil {
		l.members[c.from] = make(map[*conn]struct{})
	}
	l.members[c.from][c] = struct{}{}
	l.count++
	l.mu.Unlock()
	if victim != nil {
		l.cuts[Displaced].Add(1)
		victim.cut()
	}
}

// sample is how many connections of a source are looked at for the one that has been idle longest: a flood of
// connections must not make each look at all.
const sample = 64

// victim returns the connection that makes room for one from this source. l.mu is held.
func (l *Listener) victim(newcomer netip.Prefix) (worst *conn) {
	from, most := newcomer, len(l.members[newcomer])+1
	for s, members := range l.members {
		if len(members) > most {
			from, most = s, len(members)
		}
	}
	seen, worstBusy := 0, true
	for c := range l.members[from] { // in random order
		busy := c.busy()
		if worst == nil || worstBusy && !busy || worstBusy == busy && c.last.Load() < worst.last.Load() {
			worst, worstBusy = c, busy
		}
		if seen++; seen == sample {
			break
		}
	}
	return worst
}

// remove forgets a connection, if it has not been forgotten before.
func (l *Listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.members[c.from][c]; !there {
		return
	}
	delete(l.members[c.from], c)
	if len(l.members[c.from]) == 0 {
		delete(l.members, c.from)
	}
	l.count--
}

func (l *Listener) all() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*conn, 0, l.count)
	for _, members := range l.members {
		list = slices.AppendSeq(list, maps.Keys(members))
	}
	return list
}

func (l *Listener) sweep(now int64) {
	for _, c := range l.all() {
		if w := c.writing.Load(); w != 0 && since(w, now) > maxWrite {
			l.cuts[SlowAnswer].Add(1)
			c.cut()
			continue
		}
		c.requests.sweep(now)
	}
}

func since(begin, now int64) time.Duration { return time.Duration(now-begin) * tick }

// over reports whether requests that have not been cut hold more than the budget.
func (l *Listener) over() bool { return l.held.Load() > l.cfg.Bytes }

// relieve cuts requests until an eighth of the budget is free, so that a flood does not make each request search for
// another. Who is over the budget waits here while another goroutine does it, or all of them would go on reading.
func (l *Listener) relieve() {
	l.relieving.Lock()
	defer l.relieving.Unlock()
	for l.over() {
		const spare = 8
		need := l.held.Load() - (l.cfg.Bytes - l.cfg.Bytes/spare)
		if need <= 0 {
			return
		}
		freed := int64(0)
		for _, c := range l.greediest() {
			if freed += c.requests.shed(need - freed); freed >= need {
				break
			}
		}
		if freed == 0 {
			return // all that is there is being closed already
		}
	}
}

// greediest returns the connections of the source that holds the most, beginning with the one that does.
func (l *Listener) greediest() []*conn {
	bySource := make(map[netip.Prefix]int64)
	all := l.all()
	for _, c := range all {
		bySource[c.from] += c.staying()
	}
	from, most := netip.Prefix{}, int64(-1)
	for s, held := range bySource {
		if held > most {
			from, most = s, held
		}
	}
	list := slices.DeleteFunc(all, func(c *conn) bool { return c.from != from })
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(b.staying(), a.staying()) })
	return list
}

// conn is what connections of both kinds have.
type conn struct {
	net.Conn
	requests requests
	l        *Listener
	from     netip.Prefix
	// last is when a request was answered last, or when the connection was accepted.
	last atomic.Int64
	// writing is when the write that is under way began, 0 without.
	writing atomic.Int64

	mu      sync.Mutex
	gone    bool // the server has closed it
	isCut   bool
	held    int64 // and was not cut
	leaving int64 // was cut, and the server has not let go of it
	waiting int   // requests that wait for their answers
}

func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// hold changes what the connection holds: the part that was not cut, and the part that was; of a connection that was
// cut, all is. c.mu is held.
func (c *conn) hold(staying, leaving int64) {
	if c.gone {
		return
	}
	if c.isCut {
		staying, leaving = 0, staying+leaving
	}
	c.held += staying
	c.l.held.Add(staying)
	if leaving != 0 {
		c.leaving += leaving
		c.l.leaving.Add(leaving)
	}
}

// staying is what the connection holds and has not been cut.
func (c *conn) staying() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// cut closes the connection under its server, which notices, and closes it too. Until then it holds what it holds.
func (c *conn) cut() {
	c.mu.Lock()
	c.hold(-c.held, c.held)
	c.isCut = true
	c.mu.Unlock()
	c.l.remove(c)
	_ = c.Conn.Close() // the server may have closed it at the same moment
}

// Close implements net.Conn, for the server.
func (c *conn) Close() error {
	c.mu.Lock()
	c.hold(-c.held, -c.leaving)
	c.gone = true
	c.mu.Unlock()
	c.l.remove(c)
	return c.Conn.Close()
}

// write writes all of p, and tells sweep since when.
func (c *conn) write(p []byte) (int, error) {
	c.writing.Store(max(1, c.l.now.Load()))
	n, err := c.Conn.Write(p)
	c.writing.Store(0)
	return n, err
}
