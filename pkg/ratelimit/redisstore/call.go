package redisstore

import (
	"strings"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// call is what one caller of Take wants sent, and the answer to it. It holds copies only: a caller who gives up owns the
// requests again at once.
type call struct {
	keys     []string
	args     []byte
	requests int

	state atomic.Int32
	done  chan struct{} // receives once, after the answer is in place

	// The answer: an error, or one line for each request and the clock of the script.
	err   error
	lines string
	clock int64
}

// The states of a call. It leaves waiting either way, but once.
const (
	waiting int32 = iota
	sent
	dropped
)

func newCall(batch []*bucket.Request) *call {
	keys := 0
	for _, r := range batch {
		keys += len(r.Takes)
	}
	c := &call{
		keys:     make([]string, 0, keys),
		args:     make([]byte, 0, 64*keys),
		requests: len(batch),
		done:     make(chan struct{}, 1),
	}
	for _, r := range batch {
		for i := range r.Takes {
			c.keys = append(c.keys, r.Takes[i].Key)
		}
		c.args = r.AppendArgs(c.args)
	}
	return c
}

// send marks the call as sent; false: its caller has given up.
func (c *call) send() bool { return c.state.CompareAndSwap(waiting, sent) }

// drop gives the call up; false: it has been sent.
func (c *call) drop() bool { return c.state.CompareAndSwap(waiting, dropped) }

func (c *call) fail(err error) {
	c.err = err
	c.done <- struct{}{}
}

func (c *call) answer(lines string, clock int64) {
	c.lines, c.clock = lines, clock
	c.done <- struct{}{}
}

// cutLine returns the first line, and what comes after it.
func cutLine(s string) (line, rest string) {
	line, rest, _ = strings.Cut(s, "\n")
	return line, rest
}
