package redisstore

import (
	"strings"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// call holds what one caller of Take sends, and the answer. It has copies only, because the requests belong to the
// caller again when the caller gives up.
type call struct {
	chunks []chunk // in the order of the requests
	keys   int     // the number of keys of all chunks
	one    [1]chunk

	state atomic.Int32
	done  chan struct{} // receives once, after the answers are in the chunks

	bucket bucket.State // the caller's room for reading the answers
}

// The states of a call. It leaves waiting exactly once.
const (
	waiting int32 = iota
	sent
	dropped
)

// newCall divides the requests into chunks of at most maxKeys keys. A request with more keys is a chunk of its own.
func newCall(requests []bucket.Request) *call {
	c := &call{done: make(chan struct{}, 1)}
	for i := range requests {
		c.keys += len(requests[i].Takes)
	}
	keys, args := make([]string, 0, c.keys), make([]byte, 0, 16*len(requests)+64*c.keys)
	c.chunks = c.one[:1]
	ch := &c.chunks[0]
	for i := range requests {
		r := &requests[i]
		if len(keys)+len(r.Takes) > maxKeys && len(keys) > 0 {
			keys, args = keys[len(keys):], args[len(args):]
			c.chunks = append(c.chunks, chunk{})
			ch = &c.chunks[len(c.chunks)-1]
		}
		for k := range r.Takes {
			keys = append(keys, r.Takes[k].Key)
		}
		args = r.AppendArgs(args)
		ch.keys, ch.args, ch.requests = keys, args, ch.requests+1
	}
	return c
}

// send marks the call as sent. It returns false if the caller has given up.
func (c *call) send() bool { return c.state.CompareAndSwap(waiting, sent) }

// drop gives the call up. It returns false if the call was already sent.
func (c *call) drop() bool { return c.state.CompareAndSwap(waiting, dropped) }

// fail answers all chunks with an error.
func (c *call) fail(err error) {
	for i := range c.chunks {
		c.chunks[i].err = err
	}
	c.done <- struct{}{}
}

// chunk holds the requests of one script call, and the answer.
type chunk struct {
	requests int
	keys     []string
	args     []byte

	// The answer: an error, or one line for each request and the clock of the script.
	err   error
	lines string
	clock int64
}

// join makes one chunk of the calls of several callers. Each call has one chunk.
func join(batch []*call) chunk {
	var all chunk
	for _, c := range batch {
		all.requests += c.chunks[0].requests
		all.keys, all.args = append(all.keys, c.chunks[0].keys...), append(all.args, c.chunks[0].args...)
	}
	return all
}

// share gives each of the joined calls its part of the answer.
func (ch *chunk) share(batch []*call) {
	rest := ch.lines
	for _, c := range batch {
		one := &c.chunks[0]
		one.err, one.clock = ch.err, ch.clock
		end := 0
		for range one.requests {
			if i := strings.IndexByte(rest[end:], '\n'); i >= 0 {
				end += i + 1
			} else {
				end = len(rest)
			}
		}
		one.lines, rest = rest[:end], rest[end:]
	}
}

// answer writes the outcomes of the chunk's requests. s is room for one bucket.
func (ch *chunk) answer(requests []bucket.Request, outcomes []bucket.Outcome, s *bucket.State) {
	rest := ch.lines
	for i := range requests {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if err := requests[i].Decode(line, ch.clock, s, &outcomes[i]); err != nil {
			outcomes[i] = bucket.Outcome{Err: explain(err)}
		}
	}
}
