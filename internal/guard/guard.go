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

	"github.com/extauthz/extauthz/internal/poll"
)

// Config has the bounds of a port.
type Config struct {
	// Connections is the maximum number of open connections. One more closes the longest idle connection of the source
	// with the most connections.
	Connections int
	// Bytes is the maximum memory of requests that have begun to arrive and are not answered. The estimate is deliberately
	// high. Beyond it, the largest requests of the source that holds the most are reset. Of equal requests the oldest goes
	// first.
	Bytes int64
	// Metered is true if the server accounts for its requests itself, or not at all. Accept then returns *Metered.
	// Otherwise the clients speak HTTP/1, and the guard reads what passes.
	Metered bool
}

// maxWrite is the time limit of one write. No Envoy comes near it.
const maxWrite = 10 * time.Second

// tick is the resolution of the guard's clock, which spares each request a call of time.Now.
const tick = 100 * time.Millisecond

// Reason is why the guard closed a connection or reset a request.
type Reason int

// The reasons.
const (
	// Displaced is a connection that was closed to make room for a new one.
	Displaced Reason = iota
	// OverBudget is a request that was reset because all requests together held too much memory.
	OverBudget
	// SlowRequest is a request that did not arrive in time. SlowAnswer is one whose answer the client did not read in
	// time.
	SlowRequest
	SlowAnswer
	// Flood is a connection with too many frames that are not part of a request.
	Flood
	// The next reasons are those of servers with Metered connections.

	// LargeHeaders is a connection with a header block of too many frames, bytes or fields.
	LargeHeaders
	// RapidReset is a connection whose client resets too many requests as soon as it has sent them.
	RapidReset
	// StreamErrors is a connection with too many broken requests, each of which the server has to reset.
	StreamErrors
	// TooManyStreams is a request beyond the number that a connection may have in flight.
	TooManyStreams
	// Protocol is a connection that does not follow HTTP/2.
	Protocol
	reasons
)

func (r Reason) String() string {
	return [...]string{"displaced", "over_budget", "slow_request", "slow_answer", "flood", "large_headers", "rapid_reset",
		"stream_errors", "too_many_streams", "protocol"}[r]
}

// Reasons returns all reasons.
func Reasons() (all []Reason) {
	for r := range reasons {
		all = append(all, r)
	}
	return all
}

// Listener is a guarded listener. Run must run while its connections are served.
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

// Run advances the guard's clock, and enforces the time limits, until ctx is done.
func (l *Listener) Run(ctx context.Context) {
	poll.Every(ctx, tick, func() { l.sweep(l.now.Add(1)) })
}

// Connections returns the number of open connections.
func (l *Listener) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Held returns the estimated memory of the requests in flight.
func (l *Listener) Held() int64 { return l.held.Load() + l.leaving.Load() }

// Cuts returns how many connections were closed and requests reset for a reason.
func (l *Listener) Cuts(r Reason) uint64 { return l.cuts[r].Load() }

// Accept implements net.Listener. It waits while requests hold more than twice the budget, because the server has not
// yet released those that were cut.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for l.Held() > 2*l.cfg.Bytes {
		time.Sleep(time.Millisecond)
	}
	if l.cfg.Metered {
		m := new(Metered)
		l.admit(&m.conn, m, c)
		return m, nil
	}
	h := new(http1Conn)
	l.admit(&h.conn, h, c)
	return h, nil
}

// source returns the source of a connection: an IPv4 address, or an IPv6 network of 64 bits, because one client can
// have all its addresses. All clients on a Unix socket are one source.
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
	p, _ := ip.WithZone("").Prefix(bits) // the zero Prefix if there is no address
	return p
}

// requests are the requests of a connection.
type requests interface {
	// cutRequests cuts requests until need bytes are free, or none is left, and returns the number of bytes that it freed.
	cutRequests(need int64) int64
	// sweep cuts requests that exceed their time limits.
	sweep()
}

// admit makes c the guarded form of a connection with these requests.
func (l *Listener) admit(c *conn, r requests, unguarded net.Conn) {
	c.Conn, c.below, c.requests, c.l, c.from = unguarded, unguarded, r, l, source(unguarded.RemoteAddr())
	if secured, ok := unguarded.(interface{ NetConn() net.Conn }); ok { // a tls.Conn
		c.below = secured.NetConn()
	}
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

// sample is how many connections of a source victim compares. It is bounded, so that in a flood each new connection
// does not search all others.
const sample = 64

// victim returns the connection to close for a new one of this source. l.mu is held.
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

// remove removes a connection from members, unless it has been removed before.
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
		if w := c.writing.Load(); w != 0 && time.Duration(now-w)*tick > maxWrite {
			l.cuts[SlowAnswer].Add(1)
			c.cut()
			continue
		}
		c.requests.sweep()
	}
}

// over reports whether the requests that have not been cut hold more than the budget.
func (l *Listener) over() bool { return l.held.Load() > l.cfg.Bytes }

// freeMemory cuts requests until an eighth of the budget is free, so that a flood does not make each request search for
// another. Other goroutines that find the budget exceeded wait here, because they must not read more until requests are
// cut.
func (l *Listener) freeMemory() {
	l.relieving.Lock()
	defer l.relieving.Unlock()
	for l.over() {
		const spare = 8
		need := l.held.Load() - (l.cfg.Bytes - l.cfg.Bytes/spare)
		if need <= 0 {
			return
		}
		freed := int64(0)
		for _, c := range l.largestHolder() {
			if freed += c.requests.cutRequests(need - freed); freed >= need {
				break
			}
		}
		if freed == 0 {
			return // all requests are already cut
		}
	}
}

// largestHolder returns the connections of the source that holds the most, the largest first.
func (l *Listener) largestHolder() []*conn {
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

// conn has what an HTTP/1 connection and a Metered one have in common.
type conn struct {
	net.Conn
	// below is the connection of the system: Conn itself, or what Conn encrypts. cut closes it, because the end of TLS
	// could wait for the client.
	below    net.Conn
	requests requests
	l        *Listener
	from     netip.Prefix
	// last is the time of the last answer, or of Accept before the first one.
	last atomic.Int64
	// writing is when the current write began, or 0 without one.
	writing atomic.Int64

	mu      sync.Mutex
	gone    bool // the server has closed it
	isCut   bool
	held    int64 // by requests that are not cut
	leaving int64 // by requests that are cut, until the server releases them
	waiting int   // requests that wait for their answers
}

func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// hold adds to what the requests hold that are not cut, and to what those hold that are cut. If the connection is cut,
// all counts as cut. c.mu is held.
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

// staying returns what the requests of the connection hold that are not cut.
func (c *conn) staying() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// cut closes the connection below its server. Until the server closes it too, its memory counts as held.
func (c *conn) cut() {
	c.mu.Lock()
	c.hold(-c.held, c.held)
	c.isCut = true
	c.mu.Unlock()
	c.l.remove(c)
	_ = c.below.Close() // the server may close it at the same time
}

// Close implements net.Conn, for the server. It does not wait for the end of TLS: the client may not read it, and the
// server closes its connections one after the other.
func (c *conn) Close() error {
	c.mu.Lock()
	c.hold(-c.held, -c.leaving)
	c.gone = true
	c.mu.Unlock()
	c.l.remove(c)
	if c.below != c.Conn {
		go func() { _ = c.Conn.Close() }() // ends within 5 s (crypto/tls), or with below
		return nil
	}
	return c.Conn.Close()
}

// write writes p, and records when the write began, for sweep.
func (c *conn) write(p []byte) (int, error) {
	c.writing.Store(max(1, c.l.now.Load()))
	n, err := c.Conn.Write(p)
	c.writing.Store(0)
	return n, err
}
