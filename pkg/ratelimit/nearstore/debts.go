package nearstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

const (
	// repayAtOnce is how many buckets of a server the background catches up in one script call. repayPause is the time
	// between two calls. They need at most a few percent of the time of a Redis.
	repayAtOnce = 64
	repayPause  = 10 * time.Millisecond
	// retryPause is the pause while a server does not answer.
	retryPause = 200 * time.Millisecond
)

// debts are the buckets that owe units to Redis. Their next take repays most; the background of each server the rest.
type debts struct {
	most  int64              // buckets in all queues
	repay func(epoch uint64) // starts the background of a server

	queued atomic.Int64 // buckets in all queues; written with mu

	mu     sync.Mutex
	queues map[uint64][]table.Digest // by the epoch of the server; the background of each is running
}

// add lets the background catch up a bucket. If too many wait, the oldest one of its server is left to its next take.
func (d *debts) add(epoch uint64, key table.Digest) {
	d.mu.Lock()
	queue, running := d.queues[epoch]
	queue = append(queue, key)
	if d.queued.Add(1) > d.most {
		queue = queue[1:]
		d.queued.Add(-1)
	}
	d.queues[epoch] = queue
	d.mu.Unlock()
	if !running {
		d.repay(epoch)
	}
}

// next removes some buckets of a server from its queue. If there are none, the background of the server ends.
func (d *debts) next(epoch uint64) []table.Digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	queue := d.queues[epoch]
	n := min(repayAtOnce, len(queue))
	if d.queues[epoch] = queue[n:]; n == 0 {
		delete(d.queues, epoch)
	}
	d.queued.Add(-int64(n))
	return slices.Clone(queue[:n])
}

// owe lets the background catch up a bucket, whose shard is locked.
func (s *Store) owe(k *known) {
	if k.debt != nil && !k.queued {
		k.queued = true
		s.debts.add(s.shared.Epoch(&k.take), k.key)
	}
}

// answered reports whether Redis has answered a request.
func answered(o *bucket.Outcome) bool {
	_, answer := errors.AsType[*bucket.ScriptError](o.Err)
	return o.Err == nil || answer
}

// repayServer catches up the buckets of a server until none is left or ctx is done.
func (s *Store) repayServer(ctx context.Context, epoch uint64) {
	answers := false
	for keys := s.debts.next(epoch); len(keys) > 0; keys = s.debts.next(epoch) {
		var pause time.Duration
		answers, pause = s.repaySome(ctx, epoch, keys, answers)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// repaySome catches up some buckets of a server. It returns whether the server answers, and the pause after it. Until
// the server has answered, repaySome only asks: units of a catch-up that is not answered are never charged. A bucket
// whose server has begun another epoch, or that is at another one now, changes to that queue.
func (s *Store) repaySome(
	ctx context.Context, epoch uint64, keys []table.Digest, answers bool,
) (_ bool, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	over := make(chan struct{})
	b := s.exchanges.Get().(*exchange)
	b.begin(nil, func() {
		for n := range b.requests {
			answers = answers && answered(&b.outcomes[n])
		}
		close(over)
	})
	var ask bucket.Request
	for _, key := range keys {
		b.known = append(b.known[:0], known{handle: handle{key: key}})
		b.edit(func() {
			k := &b.known[0]
			if k.debt == nil {
				return
			}
			switch current := s.shared.Epoch(&k.take); {
			case current != epoch:
				s.debts.add(current, key)
				return
			case !answers:
				ask.Takes = []bucket.Take{k.take}
				s.debts.add(epoch, key)
				return
			}
			k.queued = false
			b.catchUp(0, &k.debt.take, k)
		})
	}
	if len(ask.Takes) > 0 {
		outcome := make([]bucket.Outcome, 1)
		ratelimit.Take(ctx, s.shared, []bucket.Request{ask}, outcome)
		if answers = answered(&outcome[0]); !answers {
			return false, retryPause
		}
	}
	b.send(ctx)
	<-over
	return answers, repayPause
}
