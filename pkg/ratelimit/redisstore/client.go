package redisstore

import (
	"context"
	"crypto/sha1" // Redis names a script by its SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// script decides in Redis. After its first run, Redis knows it as scriptName.
var (
	script     = bucket.Script()
	scriptName = hashOf(script)
)

func hashOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// work sends gathered calls until the lane is closed.
func (n *node) work() {
	for batch, ok := n.lane.gather(nil); ok; batch, ok = n.lane.gather(batch[:0]) {
		if len(batch) > 0 {
			n.send(batch)
		}
		clear(batch)
	}
}

// send lets Redis decide the batch and answers it. It waits as long as the most patient caller, so a caller that gives
// up does not affect the others.
func (n *node) send(batch []*call) {
	var few [4]*chunk // usually enough, and on the stack
	chunks, shared := few[:0], []joined(nil)
	if len(batch) == 1 {
		for i := range batch[0].chunks {
			chunks = append(chunks, &batch[0].chunks[i])
		}
	} else {
		shared = join(batch)
		for i := range shared {
			chunks = append(chunks, &shared[i].chunk)
		}
	}
	start := time.Now()
	end := start.Add(min(n.cfg.Timeout, patience))
	for _, c := range batch {
		if c.until.After(end) {
			end = c.until
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	if end.Sub(start) > failureTime { // a hanging Redis may keep all workers that long
		slow := time.AfterFunc(failureTime, func() { n.breaker.trip(errSlow) })
		defer slow.Stop()
	}
	client := n.current()
	n.eval(ctx, chunks)
	if n.cfg.Took != nil {
		n.cfg.Took(time.Since(start))
	}
	var failed error
	for _, ch := range chunks {
		if failed == nil && !elsewhere(ch.err) {
			failed = ch.err
		}
		n.epoch.notice(ch.err)
		if ch.err != nil && !notRun(ch.err) {
			ch.err = fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, ch.err)
		}
	}
	if client == n.current() { // else the result says nothing about the new one
		n.breaker.report(failed, start, end)
	}
	for i := range shared {
		shared[i].share()
	}
	for _, c := range batch {
		c.answer()
	}
}

// errSlow is the error of a call that takes failureTime, and goes on.
var errSlow = fmt.Errorf("no answer within %s", failureTime)

// eval runs the script for each chunk, in order and in one round trip, and stores the answers in the chunks.
func (n *node) eval(ctx context.Context, chunks []*chunk) {
	n.run(ctx, chunks, "EVALSHA", scriptName)
	for i, ch := range chunks {
		// Redis forgets scripts when it restarts. EVAL sends the script again.
		if code(ch.err) == "NOSCRIPT" {
			n.epoch.notice(ch.err)
			n.run(ctx, chunks[i:i+1], "EVAL", script)
		}
	}
}

// run sends a command of the script for each chunk. If another client took the place of its own before it has sent
// anything, it uses that.
func (n *node) run(ctx context.Context, chunks []*chunk, command, script string) {
	for {
		c := n.current()
		run(ctx, c, chunks, command, script)
		unsent := len(chunks) > 0 && errors.Is(chunks[0].err, redis.ErrClosed) // then all of them
		if !unsent || c == n.current() {
			return
		}
	}
}

func run(ctx context.Context, c redis.UniversalClient, chunks []*chunk, command, script string) {
	sent := time.Now()
	if len(chunks) == 1 && !chunks[0].asking {
		cmd := chunks[0].command(ctx, command, script)
		_ = c.Process(ctx, cmd)
		chunks[0].read(cmd, sent, time.Now())
		return
	}
	pipe := c.Pipeline()
	cmds := make([]*redis.Cmd, len(chunks))
	for i, ch := range chunks {
		if ch.asking {
			pipe.Do(ctx, "ASKING") // for the next command of the connection only
		}
		cmds[i] = ch.command(ctx, command, script)
		_ = pipe.Process(ctx, cmds[i]) // sends nothing yet
	}
	_, _ = pipe.Exec(ctx)
	received := time.Now()
	for i, ch := range chunks {
		ch.read(cmds[i], sent, received)
	}
}

// command returns the command for the chunk. Its last argument but one is a nonce that the answer must contain.
func (ch *chunk) command(ctx context.Context, command, script string) *redis.Cmd {
	keys := len(ch.keys) + len(ch.notes)
	words := make([]any, 0, 5+keys)
	words = append(words, command, script, keys)
	for i := range ch.keys {
		words = append(words, &ch.keys[i]) // a pointer, because a string would be allocated once more
	}
	for _, note := range slices.Backward(ch.notes) {
		words = append(words, note)
	}
	return redis.NewCmd(ctx, append(words, strconv.FormatUint(rand.Uint64(), 36), ch.args)...)
}

// read reads and checks the answer to the command, which was sent and received at these times.
func (ch *chunk) read(cmd *redis.Cmd, sent, received time.Time) {
	ch.reply.Sent, ch.reply.Received = sent, received
	var reply string
	if reply, ch.err = cmd.Text(); ch.err != nil {
		return
	}
	echo, rest, _ := strings.Cut(reply, " ")
	clock, lines, _ := strings.Cut(rest, "\n")
	switch args := cmd.Args(); {
	case echo != args[len(args)-2]:
		ch.err = fmt.Errorf("the answer to another call: %.100q", reply)
	case strings.Count(rest, "\n") != ch.requests:
		ch.err = fmt.Errorf("an answer of the script that does not fit %d requests: %.100q", ch.requests, rest)
	default:
		if ch.reply.Clock, ch.err = strconv.ParseInt(clock, 10, 64); ch.err != nil {
			ch.err = fmt.Errorf("no time in an answer of the script: %w", ch.err)
		}
		ch.lines = lines
	}
}
