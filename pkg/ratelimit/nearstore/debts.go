package nearstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
)

const (
	// repayAtOnce is how many buckets the background catches up in one script call. repayPause is the time between two
	// calls. They need at most a few percent of the time of a Redis.
	repayAtOnce = 64
	repayPause  = 10 * time.Millisecond
	// retryPause is the pause while Redis does not answer.
	retryPause = 200 * time.Millisecond
)

// debts are the buckets that owe units to Redis. Most are caught up by their next take; the background does the rest.
type debts struct {
	arrived chan struct{} // receives when the queue may not be empty
	silent  atomic.Bool   // Redis has not answered the last request
	most    int           // buckets in the queue

	mu    sync.Mutex
	queue []([memstore.HeldKey]byte)
}

// add lets the background catch up a bucket. In a full queue, the oldest bucket is left to its next take.
func (d *debts) add(key [memstore.HeldKey]byte) {
	d.mu.Lock()
	if d.queue = append(d.queue, key); len(d.queue) > d.most {
		d.queue = d.queue[1:]
	}
	d.mu.Unlock()
	select {
	case d.arrived <- struct{}{}:
	default:
	}
}

// next removes up to n buckets from the queue.
func (d *debts) next(n int) [][memstore.HeldKey]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	n = min(n, len(d.queue))
	keys := slices.Clone(d.queue[:n])
	if d.queue = d.queue[n:]; len(d.queue) == 0 {
		d.queue = nil
	}
	return keys
}

func (d *debts) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue)
}

// owe lets the background catch up a bucket, whose shard is locked.
func (s *Store) owe(k *known) {
	if k.debt != nil && !k.queued {
		k.queued = true
		s.debts.add(k.Key)
	}
}

// answered notes whether Redis answers.
func (s *Store) answered(err error) {
	_, answer := errors.AsType[*bucket.ScriptError](err)
	silent := err != nil && !answer && !errors.Is(err, context.Canceled)
	if s.debts.silent.Load() != silent {
		s.debts.silent.Store(silent)
	}
}

// repayDebts catches up buckets until ctx is done.
func (s *Store) repayDebts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.debts.arrived:
		}
		for s.debts.len() > 0 {
			pause := time.NewTimer(s.repaySome(ctx))
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
		}
	}
}

// repaySome catches up some buckets, and returns the pause after it. While Redis is silent, it only asks: units of a
// catch-up that is not answered are never charged.
func (s *Store) repaySome(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	keys := s.debts.next(repayAtOnce)
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	b.begin(s)
	var ask bucket.Request
	for _, key := range keys {
		b.held = append(b.held[:0], memstore.Held{Key: key})
		s.memory.Edit(b.held, func(now int64) {
			k := read(&b.held[0])
			if k.debt == nil {
				return
			}
			if k.queued = false; s.debts.silent.Load() {
				ask.Takes = []bucket.Take{{Key: k.take.Key, Rule: k.take.Rule, Limit: k.take.Limit}}
				s.owe(&k)
				return
			}
			b.catchUp(0, &k.debt.take, &b.held[0], now)
		})
	}
	if len(ask.Takes) > 0 {
		outcome := make([]bucket.Outcome, 1)
		s.shared.Take(ctx, []bucket.Request{ask}, outcome)
		s.answered(outcome[0].Err)
	}
	b.send(ctx, nil, nil)
	if s.debts.silent.Load() {
		return retryPause
	}
	return repayPause
}
