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
	// Connections is the maximum number. One more closes the longest idle one of the source with the most connections.
	Connections int
	// Bytes is the maximum memory of requests that have begun to arrive and are not answered. The estimate is deliberately
	// high. Beyond it, the largest requests of the source that holds the most are reset.
	Bytes int64
	// Metered is true if the server accounts for its requests itself, or not at all. Accept then returns *Conn.
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
	// SlowRequest is a request that did not arrive in time, SlowAnswer one whose answer was not read in time.
	SlowRequest
	SlowAnswer
	// Flood is a connection with too many frames that are not part of a request.
	Flood
	// The next reasons are those of servers that account for their requests.

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
	// Reasons is the number of reasons.
	Reasons
)

func (r Reason) String() string {
	return [...]string{"displaced", "over_budget", "slow_request", "slow_answer", "flood", "large_headers", "rapid_reset",
		"stream_errors", "too_many_streams", "protocol"}[r]
}

// Listener is a guarded listener. Run must run while its connections are served.
type Listener struct {
	net.Listener
	cfg     Config
	now     atomic.Int64 // in ticks
	held    atomic.Int64 // the sum of all connections
	leaving atomic.Int64
	cuts    [Reasons]atomic.Uint64

	relieving sync.Mutex

	mu      sync.Mutex
	members map[netip.Prefix]map[*Conn]struct{}
	count   int
}

// New returns a guarded listener.
func New(l net.Listener, cfg Config) *Listener {
	return &Listener{Listener: l, cfg: cfg, members: make(map[netip.Prefix]map[*Conn]struct{})}
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

// Accept implements net.Listener. It waits while requests, also those that were cut, hold more than twice the budget.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for l.Held() > 2*l.cfg.Bytes {
		time.Sleep(time.Millisecond)
	}
	guarded := l.admit(c)
	if l.cfg.Metered {
		return guarded, nil
	}
	h := &http1Conn{guarded, guarded}
	guarded.Attach(h)
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

// admit returns the guarded form of a connection.
func (l *Listener) admit(unguarded net.Conn) *Conn {
	c := &Conn{Conn: unguarded, below: unguarded, l: l, from: source(unguarded.RemoteAddr())}
	if secured, ok := unguarded.(interface{ NetConn() net.Conn }); ok { // a tls.Conn
		c.below = secured.NetConn()
	}
	c.last.Store(l.now.Load())
	l.mu.Lock()
	var victim *Conn
	if l.count >= l.cfg.Connections {
		victim = l.victim(c.from)
	}
	if l.members[c.from] == nil {
		l.members[c.from] = make(map[*Conn]struct{})
	}
	l.members[c.from][c] = struct{}{}
	l.count++
	l.mu.Unlock()
	if victim != nil {
		l.cuts[Displaced].Add(1)
		victim.Abort()
	}
	return c
}

// sample is how many connections of a source victim compares, so that a flood does not search all for each new one.
const sample = 64

// victim returns the connection to close for a new one of this source. l.mu is held.
func (l *Listener) victim(newcomer netip.Prefix) (worst *Conn) {
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
func (l *Listener) remove(c *Conn) {
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

func (l *Listener) all() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*Conn, 0, l.count)
	for _, members := range l.members {
		list = slices.AppendSeq(list, maps.Keys(members))
	}
	return list
}

func (l *Listener) sweep(now int64) {
	for _, c := range l.all() {
		if w := c.writing.Load(); w != 0 && time.Duration(now-w)*tick > maxWrite {
			l.cuts[SlowAnswer].Add(1)
			c.Abort()
		} else if owner := c.attached(); owner != nil {
			owner.Sweep(time.Now())
		}
	}
}

// over reports whether the requests that have not been cut hold more than the budget.
func (l *Listener) over() bool { return l.held.Load() > l.cfg.Bytes }

// freeMemory cuts requests until an eighth of the budget is free, so that a flood does not make each request search for
// another. Other goroutines that find the budget exceeded wait here, and do not read more meanwhile.
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
			if freed += c.cutRequests(need - freed); freed >= need {
				break
			}
		}
		if freed == 0 {
			return // all requests are already cut
		}
	}
}

// largestHolder returns the connections of the source that holds the most, the largest first.
func (l *Listener) largestHolder() []*Conn {
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
	list := slices.DeleteFunc(all, func(c *Conn) bool { return c.from != from })
	slices.SortFunc(list, func(a, b *Conn) int { return cmp.Compare(b.staying(), a.staying()) })
	return list
}
