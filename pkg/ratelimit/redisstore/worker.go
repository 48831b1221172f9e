package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

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

// send makes one script call of the batch and answers it. Its time is its own: a caller who gives up takes nothing from the
// others.
func (s *Store) send(batch []*call) {
	var keys []string
	var args []byte
	if len(batch) == 1 {
		keys, args = batch[0].keys, batch[0].args
	} else {
		for _, c := range batch {
			keys, args = append(keys, c.keys...), append(args, c.args...)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	start := time.Now()
	var reply string
	err := s.link.use(func(c client) (err error) {
		reply, err = c.eval(ctx, keys, args)
		return err
	})
	if err == nil {
		err = deliver(batch, reply)
	}
	s.breaker.report(err)
	if s.cfg.Hooks.Called != nil {
		s.cfg.Hooks.Called(len(keys), time.Since(start), err)
	}
	if err == nil {
		return
	}
	if !notRun(err) {
		err = fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, err)
	}
	for _, c := range batch {
		c.fail(err)
	}
}

// deliver gives each call its lines of the reply, whose first line is the clock; an error means that nobody was answered.
func deliver(batch []*call, reply string) error {
	requests := 0
	for _, c := range batch {
		requests += c.requests
	}
	if strings.Count(reply, "\n") != requests {
		return fmt.Errorf("an answer of the script that does not fit %d requests: %.100q", requests, reply)
	}
	first, reply := cutLine(reply)
	clock, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return fmt.Errorf("no time in an answer of the script: %w", err)
	}
	for _, c := range batch {
		end := 0
		for range c.requests {
			if i := strings.IndexByte(reply[end:], '\n'); i >= 0 {
				end += i + 1
			} else {
				end = len(reply)
			}
		}
		c.answer(reply[:end], clock)
		reply = reply[end:]
	}
	return nil
}
