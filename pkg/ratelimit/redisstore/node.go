package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// margin is the part of a caller's deadline that remains for returning the answer.
const margin = 3 * time.Millisecond

// node is one Redis: the link to it, the queue of the calls that wait for it, and the workers that send them.
type node struct {
	cfg     Config
	options *redis.UniversalOptions
	lane    lane
	breaker breaker
	workers sync.WaitGroup
	stop    context.CancelFunc

	mu     sync.RWMutex // read-locked while the client is in use
	client redis.UniversalClient
}

// newNode returns a node that connects on first use. The caller must close it.
func newNode(cfg Config, options *redis.UniversalOptions) *node {
	ctx, stop := context.WithCancel(context.Background())
	n := &node{cfg: cfg, options: options, client: redis.NewUniversalClient(options), stop: stop}
	n.lane.arrived.L = &n.lane.mu
	n.breaker.changed = func(cause error) {
		if cfg.Up != nil {
			cfg.Up(cause)
		}
		if cause != nil {
			n.workers.Go(func() { n.probe(ctx) })
		}
	}
	for range cfg.PoolSize {
		n.workers.Go(n.work)
	}
	return n
}

// close ends the node. Waiting calls get ErrClosed; calls on the wire are answered.
func (n *node) close() error {
	n.lane.close()
	n.stop()
	n.workers.Wait()
	return n.client.Close()
}

// ping is Store.Ping for this node.
func (n *node) ping(ctx context.Context) error {
	err := n.loadScript(ctx)
	if err == nil {
		return nil
	}
	switch code(err) {
	case "NOAUTH", "WRONGPASS", "NOPERM": // Redis is reachable; an operator must fix the login
	default:
		n.breaker.trip(err)
	}
	return err
}

func (n *node) loadScript(ctx context.Context) error {
	n.mu.RLock()
	c := n.client // renew may close it meanwhile
	n.mu.RUnlock()
	// Ping first: before the login, Redis refuses a text as long as the script.
	if err := c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: ping: %w", err)
	}
	if err := c.ScriptLoad(ctx, script).Err(); err != nil {
		return fmt.Errorf("redis: load the script: %w", err)
	}
	return nil
}

// submit gives the call to the next free worker and waits. Without an error, the chunks have the answer.
func (n *node) submit(ctx context.Context, c *call) error {
	wait := n.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)-margin)
	}
	switch {
	case wait <= 0 || ctx.Err() != nil:
		return ErrTooLate
	case n.breaker.open():
		return ErrUnavailable
	}
	if err := n.lane.enter(c); err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if c.drop() {
		return ErrTooLate
	}
	select {
	case <-c.done: // the answer came at the same moment
		return nil
	default:
		return fmt.Errorf("redis: no answer in time: %w", ratelimit.ErrOutcomeUnknown)
	}
}
