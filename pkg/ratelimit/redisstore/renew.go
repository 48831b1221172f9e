package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// renew replaces the client by a new one, which follows changes of DNS and of the master, if a Redis answers and
// accepts writes.
func (n *node) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DialTimeout+patience)
	defer cancel()
	if n.sentinels == nil {
		return n.use(ctx, n.options.Addrs[0])
	}
	addrs, err := n.sentinels.candidates(ctx, n.address())
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

// address returns the address of the client, "" if it asks the sentinels.
func (n *node) address() string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.addr
}

// use replaces the client by one of an address, if the Redis there answers and accepts writes. Calls on the wire have
// patience to be answered: the old Redis may hang, and callers may wait long.
func (n *node) use(ctx context.Context, addr string) error {
	fresh := redis.NewUniversalClient(at(n.options, addr))
	if err := writable(ctx, fresh); err != nil {
		_ = fresh.Close()
		return err
	}
	n.mu.Lock()
	old := n.client
	n.client, n.addr = fresh, addr
	n.mu.Unlock()
	n.workers.Go(func() {
		time.Sleep(patience)
		_ = old.Close() // ends the calls that are left
	})
	return nil
}

// turnTo replaces the client after a failover. If the new master does not accept writes within a second, that is left
// to the breaker: the old one goes on as long as it answers.
func (n *node) turnTo(ctx context.Context, addr string) {
	n.turning.Lock()
	defer n.turning.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	every := time.NewTicker(probeInterval)
	defer every.Stop()
	for n.address() != addr && n.use(ctx, addr) != nil {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
