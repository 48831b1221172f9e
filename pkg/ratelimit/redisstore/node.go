package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is one Redis: the link to it, the queue of the calls that wait for it, and the workers that send them.
type node struct {
	name    string // for logs and metrics
	cfg     Config
	options *redis.UniversalOptions
	lane    lane
	breaker breaker
	epoch   epoch
	workers sync.WaitGroup
	calls   sync.Pool // of *call
	stop    context.CancelFunc
	// sentinels name the master, which the node then is. nil for a Redis with an address of its own.
	sentinels *sentinels
	turning   sync.Mutex             // held while turnTo looks for the master
	target    atomic.Pointer[target] // another one may take its place at any time; it is closed some time later
	// redirected is when another node of the cluster last named this one for a request. cluster.mu guards it.
	redirected time.Time
}

// target is the Redis that a node leads to.
type target struct {
	addr     string                // "" for one that asks the sentinels
	client   redis.UniversalClient // for all commands but script calls
	options  *redis.UniversalOptions
	replaced chan struct{} // closed when another target takes its place
}

// newTarget returns a target whose client connects on first use.
func newTarget(addr string, options *redis.UniversalOptions) *target {
	return &target{addr, redis.NewUniversalClient(options), options, make(chan struct{})}
}

// newNode returns a node that connects on first use. changed is called when it stops answering, with the error, and
// when it answers again, with nil. The caller must close the node.
func newNode(name string, cfg Config, options *redis.UniversalOptions, changed func(cause error)) *node {
	ctx, stop := context.WithCancel(context.Background())
	own := *options
	n := &node{name: name, cfg: cfg, options: &own, stop: stop}
	n.epoch.counter = cfg.epochs
	n.epoch.begin()
	own.OnConnect = n.epoch.connected
	first := own
	if options.MasterName != "" {
		n.sentinels = newSentinels(options)
		own.MasterName = ""
		first = *at(&own, name)
		first.Dialer = n.sentinels.dialer(own.Dialer)
	}
	n.target.Store(newTarget("", &first))
	n.lane.arrived.L = &n.lane.mu
	n.breaker.changed = func(cause error) {
		n.epoch.begin()
		changed(cause)
		if cause != nil {
			n.workers.Go(func() { n.probe(ctx) })
		}
	}
	for range cfg.PoolSize {
		n.lane.workers = append(n.lane.workers, &worker{node: n})
	}
	for _, w := range n.lane.workers {
		n.workers.Go(func() { w.work(ctx) })
	}
	if n.sentinels != nil {
		n.sentinels.follow(n.turnTo)
	}
	return n
}

// close ends the node. Waiting calls get ErrClosed; calls on the wire are answered.
func (n *node) close() error {
	n.lane.close()
	n.stop()
	if n.sentinels != nil {
		n.sentinels.close()
	}
	n.workers.Wait()
	return n.target.Load().client.Close()
}

// ping is Store.Ping for this node.
func (n *node) ping(ctx context.Context) error {
	var err error
	for again := true; again; {
		t := n.target.Load()
		err = loadScript(ctx, t.client)
		again = err != nil && t != n.target.Load() // another one took its place, and its connections were closed
	}
	over := errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, redis.ErrClosed) // for the caller or for the node
	if err != nil && !isLogin(err) && !over {
		n.breaker.trip(err)
	}
	return err
}

// loadScript sends the script to Redis.
func loadScript(ctx context.Context, c redis.UniversalClient) error {
	// Ping first: before the login, Redis refuses a text as long as the script.
	if err := c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: ping: %w", err)
	}
	if err := c.ScriptLoad(ctx, script).Err(); err != nil {
		return fmt.Errorf("redis: load the script: %w", err)
	}
	return nil
}

// renew replaces the target by one that follows DNS and the master, if a Redis answers there and accepts writes.
func (n *node) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DialTimeout+patience)
	defer cancel()
	if n.sentinels == nil {
		return n.use(ctx, n.options.Addrs[0])
	}
	addrs, err := n.sentinels.candidates(ctx, n.target.Load().addr)
	if err != nil {
		return err
	}
	failed := make([]error, len(addrs))
	for i, addr := range addrs {
		if failed[i] = n.use(ctx, addr); failed[i] == nil {
			return nil
		}
	}
	return errors.Join(failed...)
}

// use replaces the target by one of an address, if the Redis there answers and accepts writes. Calls on the wire have
// patience to be answered: the old Redis may hang, and callers may wait long.
func (n *node) use(ctx context.Context, addr string) error {
	fresh := newTarget(addr, at(n.options, addr))
	if err := writable(ctx, fresh.client); err != nil {
		_ = fresh.client.Close()
		return err
	}
	old := n.target.Swap(fresh)
	close(old.replaced)
	closeAll(n.lane.retire(old))
	n.workers.Go(func() {
		time.Sleep(patience)
		closeAll(n.lane.silent(old)) // ends their calls
		_ = old.client.Close()
	})
	return nil
}

// closeAll closes connections of workers, whose goroutines notice.
func closeAll(links []*link) {
	for _, l := range links {
		_ = l.Close() // an error means that it was closed
	}
}

// turnTo replaces the target after a failover. If the new master does not accept writes within a second, that is left
// to the breaker: the old one goes on as long as it answers.
func (n *node) turnTo(ctx context.Context, addr string) {
	n.turning.Lock()
	defer n.turning.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	every := time.NewTicker(probeInterval)
	defer every.Stop()
	for n.target.Load().addr != addr && n.use(ctx, addr) != nil {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
