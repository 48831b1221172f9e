package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// countScript enters the replica ARGV[1] in the set KEYS[1], where an entry lasts ARGV[2] ms. If ARGV[3] is 0, the next
// call removes the entry. It returns the number of entries, negative if this replica had none. That is so after a loss
// of the set or a step of the clock, when those of others may be missing, too.
var countScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 1, '+inf')
local entered = redis.call('ZADD', KEYS[1], now * ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1]) * (1 - 2 * entered)`)

// CountReplicas counts the replicas that share the main Redis, at once and then every Config.CountEvery until Close. It
// calls counted with each number, which is 1 or more, and once with an error if an operator has to fix why Redis does
// not count. No decision waits for it. Call it once.
//
// After this replica had to enter the set again, others may be missing: two counts can only make the number larger.
func (s *Store) CountReplicas(counted func(n int, err error)) {
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	s.leave = func() {
		stop()
		<-over
	}
	go func() {
		defer close(over)
		defer ratelimit.Caught(s.cfg.Panicked)
		id, last, growing, refused := rand.Text(), 0, 0, false
		for ctx.Err() == nil {
			n, err := s.enter(ctx, id, 1)
			pause := s.cfg.CountEvery
			switch {
			case err == nil:
				if n < 0 {
					n, growing = -n, 2
				}
				if growing > 0 {
					n, growing = max(n, last), growing-1
				}
				last = n
				counted(n, nil)
			case !isRefusal(err):
				pause /= 10
			case !refused:
				refused = true
				counted(0, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		_, _ = s.enter(context.WithoutCancel(ctx), id, 0) // otherwise its entry expires
	}()
}

// enter runs countScript for a replica. score is 0 if it leaves, else 1. It uses no connection of a worker.
func (s *Store) enter(ctx context.Context, id string, score int) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	key := s.cfg.KeyPrefix + "rl:replicas" // no bucket has this key: see ratelimit.identity
	h := s.spaces[0].home(key)
	if h.cluster != nil {
		defer func() {
			if err != nil {
				h.cluster.readAgain()
			}
		}()
	}
	if h.node == nil || h.node.breaker.open() {
		return 0, ErrUnavailable
	}
	const intervals = 3 // for which an entry lasts
	n, err = countScript.Run(ctx, h.node.target.Load().client, []string{key},
		id, intervals*s.cfg.CountEvery.Milliseconds(), score).Int()
	if err == nil && n == -n { // 0 or the smallest integer
		err = fmt.Errorf("%w: the number of replicas is %d", errReply, n)
	}
	return n, err
}

// isRefusal reports whether an operator has to fix why Redis does not count.
func isRefusal(err error) bool {
	return errors.Is(err, errReply) || isLogin(err) || code(err) != "" && !notRun(err)
}
