package redisstore

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// call holds what one caller of Start sends to one node, until it is answered. What it sends are copies: when it has
// ended, all else belongs to the caller again, although a worker may still have the call.
//
// The goroutine that moves state to ended writes the outcomes and calls done. Nothing else may touch the outcomes. That
// is the worker that has the reply, the timer, or the one that finds out that the call cannot be sent.
type call struct {
	node   *node
	asked  []callPart // in the order of the chunks
	done   func()
	chunks []chunk
	keys   int       // the number of keys of all chunks
	until  time.Time // the end of the caller's wait
	// settling means that the call is sent even if its caller does not wait any more.
	settling bool
	// reserves means that a request reserves units, so the caller must learn what became of a call that was sent.
	reserves bool

	names []byte // has the keys of all chunks
	one   [1]chunk

	state    atomic.Int32
	timer    *time.Timer  // calls timeOut
	leave    func() bool  // ends the wait for the caller's context; nil for one that never ends
	graceEnd atomic.Int64 // in ns since until; 0 if there is no grace yet
}

// callPart is a request, and where its outcome is written.
type callPart struct {
	request *bucket.Request
	outcome *bucket.Outcome
}

// The states of a call. Only a settling call may be sent after it has ended.
const (
	waiting int32 = iota
	sent
	ended
)

// newCall returns a call of a caller who waits until a time. It calls done when the outcomes are written.
func (n *node) newCall(until time.Time, done func()) *call {
	c, ok := n.calls.Get().(*call)
	if !ok {
		c = &call{node: n}
		c.timer = time.AfterFunc(time.Hour, c.timeOut)
		c.timer.Stop()
	}
	c.until, c.done = until, done
	return c
}

// add adds a request to the last chunk if that has room, and its scope is the same. A request with more than maxKeys
// keys is a chunk of its own. The chunks share the room of the call.
func (c *call) add(r *bucket.Request, o *bucket.Outcome, to scope) {
	c.asked = append(c.asked, callPart{r, o})
	beside := namesBeside(r, c.node.cfg.KeyPrefix, to)
	keys := len(r.Takes) + len(beside)
	last := len(c.chunks) - 1
	switch {
	case last < 0:
		c.chunks, last = c.one[:], 0
		c.chunks[0].scope = to
	case !c.chunks[last].takes(to, keys):
		full := &c.chunks[last]
		c.chunks = append(c.chunks, chunk{scope: to, keys: full.keys[len(full.keys):], args: full.args[len(full.args):]})
		last++
	}
	ch := &c.chunks[last]
	for i := range r.Takes {
		begin := len(c.names)
		c.names = append(c.names, r.Takes[i].Key...)
		c.reserves = c.reserves || r.Takes[i].Reserves()
		ch.keys = append(ch.keys, texts.View(c.names[begin:]))
	}
	ch.beside = append(ch.beside, beside...)
	ch.args = r.AppendArgs(ch.args, bucket.Notes(!to.alone), c.until.UnixMicro())
	ch.lineBytes += r.MostBytes()
	ch.requests++
	c.keys += keys
}

// namesBeside returns the names of the notes and of the holds that a request needs, usually none. A bucket in a moving
// slot goes without a note: the bucket and the note may be at different nodes. One with holds is decided when both are
// at one node.
func namesBeside(r *bucket.Request, prefix string, to scope) (names []string) {
	for i := range r.Takes {
		t := &r.Takes[i]
		if t.Noted() && !to.alone {
			names = append(names, besideOf(prefix, noteMark, t.Key))
		}
		if t.Holding() {
			names = append(names, besideOf(prefix, holdsMark, t.Key))
		}
	}
	return names
}

// start queues a call to which all requests were added. ctx is that of the caller. If the caller leaves, the wait ends,
// except for a call that was sent and reserves: its outcome is needed to undo the holds.
func (c *call) start(ctx context.Context) {
	if c.node.breaker.open() {
		c.fail(ErrUnavailable)
		return
	}
	if ctx.Done() != nil {
		leave := c.expire
		if c.reserves {
			leave = func() { c.giveUp() }
		}
		c.leave = context.AfterFunc(ctx, leave)
	}
	c.timer.Reset(time.Until(c.until))
	switch w, err := c.node.lane.enter(c); {
	case err != nil:
		c.fail(err)
	case w != nil:
		w.send()
	}
}

// send marks the call as sent. It returns false if the call has ended, and need not be sent.
func (c *call) send() bool { return c.state.CompareAndSwap(waiting, sent) || c.settling }

// past reports whether the call has ended, and need not be sent.
func (c *call) past() bool { return c.state.Load() == ended && !c.settling }

// answer ends a call whose chunks have the answers. It is not used again by the worker that calls it.
func (c *call) answer() {
	if !c.state.CompareAndSwap(sent, ended) {
		return
	}
	defer ratelimit.Caught(c.node.cfg.Panicked)
	read := false
	defer func() {
		if !read { // a panic
			c.end(errNoAnswer)
		}
	}()
	i := 0
	for k := range c.chunks {
		ch := &c.chunks[k]
		for range ch.requests {
			ch.answer(c.asked[i].request, c.asked[i].outcome)
			i++
		}
	}
	read = true
	done := c.done
	c.recycle()
	done()
}

// fail ends a call that waits with an error.
func (c *call) fail(err error) {
	if c.state.CompareAndSwap(waiting, ended) {
		c.stop()
		c.end(err)
	}
}

// end writes an error as all outcomes and calls done. The call has just ended.
func (c *call) end(err error) {
	defer ratelimit.Caught(c.node.cfg.Panicked)
	for _, a := range c.asked {
		*a.outcome = bucket.Outcome{Err: err}
	}
	c.done()
}

// stop stops all that could end the call. It returns false if something is doing so at this moment.
func (c *call) stop() bool {
	left := c.leave == nil || c.leave()
	return c.timer.Stop() && left
}

// recycle keeps the memory of the call for another one, unless its timer has fired: that goroutine may still use it.
func (c *call) recycle() {
	if !c.stop() || c.graceEnd.Load() != 0 || cap(c.asked) > maxKeys || cap(c.one[0].keys) > 2*maxKeys {
		return
	}
	clear(c.asked)
	clear(c.one[0].keys)
	first := chunk{keys: c.one[0].keys[:0], args: c.one[0].args[:0]}
	*c = call{node: c.node, asked: c.asked[:0], names: texts.Reset(c.names), one: [1]chunk{first}, timer: c.timer}
	c.node.calls.Put(c)
}

// scope is what all requests of a script call have in common. The zero value is right for a Redis without slots.
type scope struct {
	slot uint16
	// asking means that the slot is moving to the node, which has some of its keys already.
	asking bool
	// alone makes a script call for one request. While a slot moves, several keys may be at different nodes.
	alone bool
}

// chunk holds the requests of one script call, and the answer.
type chunk struct {
	scope
	requests int
	keys     []string
	beside   []string // the names of the notes and of the holds that the requests need
	args     []byte
	nonce    uint64 // of the last command
	// lineBytes is the most bytes of the lines of the answer.
	lineBytes int

	// The answer: an error, or one line for each request.
	err   error
	lines string
	reply bucket.Reply
}

// takes reports whether a request with some keys can be decided by the same script call.
func (ch *chunk) takes(to scope, keys int) bool {
	return ch.scope == to && !to.alone && (len(ch.keys) == 0 || len(ch.keys)+len(ch.beside)+keys <= maxKeys)
}

// most returns the most bytes of the answer: of the line with the nonce and the clock, and of those of the requests.
func (ch *chunk) most() int { return maxNonce + 32 + ch.lineBytes }

// joined is a chunk made of those of several callers.
type joined struct {
	chunk
	parts []*chunk
}

// join makes as few chunks as possible of those of several callers. It uses the memory of earlier ones.
func join(all []joined, batch []*call) []joined {
	all = all[:0]
	for _, c := range batch {
		for i := range c.chunks {
			part := &c.chunks[i]
			at := slices.IndexFunc(all, func(j joined) bool { return j.takes(part.scope, len(part.keys)+len(part.beside)) })
			if at < 0 {
				at, all = len(all), slices.Grow(all, 1)[:len(all)+1]
				old := &all[at]
				*old = joined{chunk{scope: part.scope, keys: old.keys[:0], args: old.args[:0]}, old.parts[:0]}
			}
			j := &all[at]
			j.requests += part.requests
			j.lineBytes += part.lineBytes
			j.keys, j.args = append(j.keys, part.keys...), append(j.args, part.args...)
			j.beside = append(j.beside, part.beside...)
			j.parts = append(j.parts, part)
		}
	}
	return all
}

// share gives each of the joined chunks its part of the answer.
func (j *joined) share() {
	rest := j.lines
	for _, part := range j.parts {
		part.err, part.reply = j.err, j.reply
		end := 0
		for range part.requests {
			if i := strings.IndexByte(rest[end:], '\n'); i >= 0 {
				end += i + 1
			} else {
				end = len(rest)
			}
		}
		part.lines, rest = rest[:end], rest[end:]
	}
	clear(j.keys)
	clear(j.parts)
}

// answer writes the outcome of the chunk's next request.
func (ch *chunk) answer(r *bucket.Request, o *bucket.Outcome) {
	err := ch.err
	if err == nil {
		var line string
		line, ch.lines, _ = strings.Cut(ch.lines, "\n")
		err = explain(r.Decode(line, ch.reply, o))
	}
	if err != nil {
		*o = bucket.Outcome{Err: err}
	}
}
