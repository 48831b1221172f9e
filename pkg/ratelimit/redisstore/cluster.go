package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// readInterval is the shortest time between two readings of the slots. While a node does not answer, they are read
	// this often, because another node may take over its slots.
	readInterval = 200 * time.Millisecond
	// readEvery is the longest time between two readings.
	readEvery = time.Minute
	// readUnserved is the longest time between two readings while no node has a slot, as before its slots are assigned.
	readUnserved = 5 * time.Second
)

// cluster knows which node of a Redis Cluster has which slots. It follows changes: a node that is asked for a slot that
// it no longer has names the node that has it, and the cluster then reads all slots again.
type cluster struct {
	cfg     Config
	options *redis.UniversalOptions // Addrs are the nodes to begin with
	table   atomic.Pointer[slotTable]
	tried   chan struct{} // closed after the first reading, whatever its result
	stale   chan struct{} // receives when the slots are to be read again
	stop    context.CancelFunc
	follows sync.WaitGroup
	reading sync.Mutex // held while the slots are read

	mu    sync.Mutex
	known map[string]*node // by address; nil after close
	lost  bool             // reported: the slots have never been read
}

// slotTable has the node of each slot, nil if none serves it.
type slotTable [slots]*node

// newCluster returns a cluster that reads the slots in the background. The caller must close it.
func newCluster(cfg Config, options *redis.UniversalOptions) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	c := &cluster{
		cfg: cfg, options: options, known: map[string]*node{}, stop: stop,
		tried: make(chan struct{}), stale: make(chan struct{}, 1),
	}
	c.follows.Go(func() { c.follow(ctx) })
	return c
}

// close ends the cluster and its nodes.
func (c *cluster) close() error {
	c.stop()
	c.follows.Wait()
	c.mu.Lock()
	nodes := c.known
	c.known = nil
	c.mu.Unlock()
	return together(slices.Collect(maps.Values(nodes)), (*node).close)
}

// name returns the addresses to begin with.
func (c *cluster) name() string { return strings.Join(c.options.Addrs, ",") }

// nodeOf returns the node of a slot, nil if no node serves it.
func (c *cluster) nodeOf(slot uint16) *node {
	if table := c.table.Load(); table != nil {
		return table[slot]
	}
	return nil
}

// masters returns the nodes that have slots.
func (c *cluster) masters() (nodes []*node) {
	table := c.table.Load()
	if table == nil {
		return nil
	}
	var last *node
	for _, n := range table {
		if n != nil && n != last && !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
		last = n
	}
	return nodes
}

// node returns the node at an address, if needed a new one; nil after close. redirected: another node named it.
func (c *cluster) node(addr string, redirected bool) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		return nil
	}
	n, ok := c.known[addr]
	if !ok {
		n = newNode(addr, c.cfg, at(c.options, addr), func(cause error) {
			c.cfg.Up(addr, cause)
			c.readAgain()
		})
		c.known[addr] = n
	}
	if redirected {
		n.redirected = time.Now()
	}
	return n
}

// readAgain makes follow read the slots soon.
func (c *cluster) readAgain() {
	select {
	case c.stale <- struct{}{}:
	default:
	}
}

// follow reads the slots at once, and then when they may have changed.
func (c *cluster) follow(ctx context.Context) {
	var p pace
	for ctx.Err() == nil {
		_ = c.read(ctx) // the caller of Up and each request learn of an error
		select {
		case <-ctx.Done():
		case <-time.After(readInterval):
		}
		if c.silent() {
			continue
		}
		select {
		case <-ctx.Done():
		case <-c.stale:
		case <-time.After(p.next(c.table.Load())):
		}
	}
}

// silent reports whether the slots are unknown or a node does not answer.
func (c *cluster) silent() bool {
	return c.table.Load() == nil || slices.ContainsFunc(c.masters(), func(n *node) bool { return n.breaker.open() })
}

// pace is how long to wait for the next reading if nothing shows that the slots have changed.
type pace struct{ unserved time.Duration }

// next returns the time to the next reading. It doubles while a slot has no node.
func (p *pace) next(table *slotTable) time.Duration {
	if !slices.Contains(table[:], nil) {
		p.unserved = 0
		return readEvery
	}
	p.unserved = min(max(readInterval, 2*p.unserved), readUnserved)
	return p.unserved
}

// read reads the slots from the first node that answers.
func (c *cluster) read(ctx context.Context) error {
	c.reading.Lock()
	defer c.reading.Unlock()
	var failed []error
	for _, addr := range c.sources() {
		table, err := c.readFrom(ctx, addr)
		if err == nil {
			c.take(table)
			return nil
		}
		if failed = append(failed, err); isLogin(err) || ctx.Err() != nil {
			break
		}
	}
	err := fmt.Errorf("redis: read the slots of the cluster: %w", errors.Join(failed...))
	if !errors.Is(ctx.Err(), context.Canceled) { // else the cluster is being closed
		c.report(err)
	}
	return err
}

// sources returns the addresses to ask for the slots: first the nodes that answer.
func (c *cluster) sources() (addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, n := range c.known { // in random order
		if !n.breaker.open() {
			addrs = append(addrs, addr)
		}
	}
	for _, addr := range slices.AppendSeq(slices.Clone(c.options.Addrs), maps.Keys(c.known)) {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// readFrom reads the slots from one node.
func (c *cluster) readFrom(ctx context.Context, addr string) (*slotTable, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout+patience)
	defer cancel()
	client := redis.NewUniversalClient(at(c.options, addr))
	defer func() { _ = client.Close() }()
	ranges, err := client.ClusterSlots(ctx).Result()
	if err != nil {
		return nil, err
	}
	table := new(slotTable)
	served := false
	for _, r := range ranges {
		if len(r.Nodes) == 0 || r.Start < 0 || r.End >= slots {
			continue
		}
		n := c.node(complete(r.Nodes[0].Addr, addr), false) // the first one is the master
		for slot := r.Start; slot <= r.End; slot++ {
			table[slot], served = n, true
		}
	}
	if !served {
		return nil, fmt.Errorf("%s serves no slots", addr)
	}
	return table, nil
}

// complete returns an address that a node named. A node that does not know its own host leaves it out. MOVED and ASK
// have no brackets around an IPv6 address.
func complete(addr, namedBy string) string {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 {
		return addr
	}
	host, port := strings.Trim(addr[:colon], "[]"), addr[colon+1:]
	if host == "" || host == "?" {
		return namedBy[:max(0, strings.LastIndexByte(namedBy, ':'))] + ":" + port
	}
	return net.JoinHostPort(host, port)
}

// take replaces the table, and ends nodes that are not needed any more.
func (c *cluster) take(table *slotTable) {
	c.table.Store(table)
	c.report(nil)
	masters := c.masters()
	var gone []*node
	c.mu.Lock()
	for addr, n := range c.known {
		if !slices.Contains(masters, n) && time.Since(n.redirected) > readEvery {
			delete(c.known, addr)
			gone = append(gone, n)
		}
	}
	c.mu.Unlock()
	for _, n := range gone {
		_ = n.close() // its connections are closed; an error changes nothing
	}
}

// report ends the wait for the first reading, and tells Up whether the slots are known.
func (c *cluster) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.tried:
	default:
		close(c.tried)
	}
	if unknown := c.table.Load() == nil; unknown != c.lost && !isLogin(err) {
		c.lost = unknown
		c.cfg.Up(c.name(), err)
	}
}

// ping reports whether the nodes of all slots answer and accept the script.
func (c *cluster) ping(ctx context.Context) error {
	if c.table.Load() == nil {
		if err := c.read(ctx); err != nil {
			return err
		}
	}
	return together(c.masters(), func(n *node) error { return n.ping(ctx) })
}
