package redisstore

import (
	"context"
	"errors"
	"time"
)

// renew replaces the target by a new one, which follows changes of DNS and of the master, if a Redis answers and
// accepts writes.
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
