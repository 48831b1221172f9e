package redisstore

import (
	"context"
	"fmt"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// work sends what gathers, call after call, until the lane is closed.
func (s *Store) work() {
	var batch []*call
	for {
		var ok bool
		if batch, ok = s.lane.gather(batch[:0]); !ok {
			return
		}
		if len(batch) > 0 {
			s.send(batch)
		}
		clear(batch)
	}
}

// send has Redis decide the batch and answers it. Its time is its own: a caller that gives up takes nothing from the others.
func (s *Store) send(batch []*call) {
	chunks := batch[0].chunks
	if len(batch) > 1 {
		chunks = []chunk{join(batch)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	s.link.use(func(c client) { c.eval(ctx, chunks) })
	var failed error
	for i := range chunks {
		ch := &chunks[i]
		if failed == nil {
			failed = ch.err
		}
		if ch.err != nil && !notRun(ch.err) {
			ch.err = fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, ch.err)
		}
	}
	s.breaker.report(failed)
	if len(batch) > 1 {
		chunks[0].share(batch)
	}
	for _, c := range batch {
		c.done <- struct{}{}
	}
}
