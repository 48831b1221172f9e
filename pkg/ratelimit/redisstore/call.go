package redisstore

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// call holds what one caller of Start sends to one node, and the answer. It has copies only, because the requests
// belong to the caller again when the caller gives up.
type call struct {
	chunks []chunk   // in the order of the requests
	keys   int       // the number of keys of all chunks
	end    time.Time // of the caller's wait
	one    [1]chunk

	state atomic.Int32
	done  chan struct{} // receives once, after the answers are in the chunks
}

// The states of a call. It leaves waiting exactly once.
const (
	waiting int32 = iota
	sent
	dropped
)

// newCall returns a call with room for some requests, with some keys in all. Its caller waits until end.
func newCall(end time.Time, requests, keys int) *call {
	c := &call{end: end, done: make(chan struct{}, 1)}
	c.one[0].keys, c.one[0].args = make([]string, 0, keys), make([]byte, 0, 16*requests+64*keys)
	return c
}

// add adds a request to the last chunk if that has room, and its scope is the same. A request with more than maxKeys
// keys is a chunk of its own. The chunks share the room of the call. prefix is Config.KeyPrefix.
func (c *call) add(r *bucket.Request, prefix string, to scope) {
	notes := namesOfNotes(r, prefix, to)
	keys := len(r.Takes) + len(notes)
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
		ch.keys = append(ch.keys, strings.Clone(r.Takes[i].Key))
	}
	ch.notes = append(ch.notes, notes...)
	ch.args = r.AppendArgs(ch.args, bucket.Notes(!to.alone))
	ch.requests++
	c.keys += keys
}

// namesOfNotes returns the names of the notes that a request needs, usually none. A bucket in a moving slot goes
// without: the bucket and the note may be at different nodes.
func namesOfNotes(r *bucket.Request, prefix string, to scope) (names []string) {
	for i := range r.Takes {
		if r.Takes[i].Noted() && !to.alone {
			names = append(names, noteOf(prefix, r.Takes[i].Key))
		}
	}
	return names
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
	notes    []string // the names of the notes that the requests need
	args     []byte

	// The answer: an error, or one line for each request.
	err   error
	lines string
	reply bucket.Reply
}

// takes reports whether a request with some keys can be decided by the same script call.
func (ch *chunk) takes(to scope, keys int) bool {
	return ch.scope == to && !to.alone && (len(ch.keys) == 0 || len(ch.keys)+len(ch.notes)+keys <= maxKeys)
}

// joined is a chunk made of those of several callers.
type joined struct {
	chunk
	parts []*chunk
}

// join makes as few chunks as possible of those of several callers.
func join(batch []*call) []joined {
	all := make([]joined, 0, 1)
	for _, c := range batch {
		for i := range c.chunks {
			part := &c.chunks[i]
			at := slices.IndexFunc(all, func(j joined) bool { return j.takes(part.scope, len(part.keys)+len(part.notes)) })
			if at < 0 {
				at, all = len(all), append(all, joined{chunk: chunk{scope: part.scope}, parts: make([]*chunk, 0, len(batch))})
			}
			j := &all[at]
			j.requests += part.requests
			j.keys, j.args = append(j.keys, part.keys...), append(j.args, part.args...)
			j.notes = append(j.notes, part.notes...)
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
