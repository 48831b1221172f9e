package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// node is one Redis: the link to it, the queue of the calls that wait for it, and the workers that send them.
type node struct {
	name    string // for logs and metrics
	cfg     Config
	options *redis.UniversalOptions
	lane    lane
	links   links
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
	own.Dialer, own.OnConnect = n.links.dialer(options), n.epoch.connected
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
		n.workers.Go(func() { n.work(ctx) })
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
	err := n.loadScript(ctx)
	over := errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, redis.ErrClosed) // for the caller or for the node
	if err != nil && !isLogin(err) && !over {
		n.breaker.trip(err)
	}
	return err
}

// loadScript sends the script to Redis.
func (n *node) loadScript(ctx context.Context) error {
	for {
		t := n.target.Load()
		err := loadScript(ctx, t.client)
		if err == nil || t == n.target.Load() {
			return err
		}
		// Another target took its place, and its connections were closed.
	}
}

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

// start begins to decide requests whose buckets are all in this node, for a caller who waits until a time.
func (n *node) start(ctx context.Context, until time.Time, requests []bucket.Request, outcomes []bucket.Outcome,
	done func()) {
	c := n.newCall(until, done)
	for i := range requests {
		c.add(&requests[i], &outcomes[i], scope{})
	}
	c.start(ctx)
}
