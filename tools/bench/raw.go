package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/tools/bench/figures"
	"github.com/extauthz/extauthz/tools/loadgen"
)

// rawScript is a token bucket with the fewest commands: one bucket, one read, one write, without any check.
const rawScript = `
local now, cost, burst = tonumber(ARGV[1]), 36000, 3600000000
local full = tonumber(redis.call('GET', KEYS[1]) or 0)
if full < now then full = now end
full = full + cost
if full - now > burst then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
return 1`

// takesInFlight is how many takes share a write, as many as a server with 64 requests in flight can gather. takesInCall
// is how many of them share a call of the script of the service.
const takesInFlight, takesInCall = 32, 16

// aKey and aTime are replaced in each command before it is sent.
const aKey, aTime = "bench_user_00000000", "0000000000000000"

// calls are calls of a script, to be sent as one batch.
type calls struct {
	script string
	number int      // in a batch
	words  []string // of one call, after the hash of the script
}

// rawCalls are calls of the minimal script.
func rawCalls() calls {
	return calls{script: rawScript, number: takesInFlight, words: []string{"1", aKey, aTime}}
}

// bucketCalls are calls of the script of the service, with buckets of one limit.
func bucketCalls(limit bucket.Limit) calls {
	c := calls{script: bucket.Script(), number: takesInFlight / takesInCall, words: []string{strconv.Itoa(takesInCall)}}
	r := bucket.Request{Takes: []bucket.Take{{Limit: limit, Cost: 1}}}
	var args []byte
	for range takesInCall {
		c.words = append(c.words, aKey+" "+string(limit.Algorithm.Letter()))
		args = r.AppendArgs(args, bucket.WithoutNotes)
	}
	c.words = append(c.words, "echo", string(args))
	return c
}

// scripts returns rows of the minimal script and the one of the service, called directly.
func scripts(redis string) *contest {
	all := &contest{name: "scripts", title: "The script of each algorithm, called directly for 16 buckets at once"}
	all.rows = append(all.rows, &row{name: figures.Raw, measure: direct(redis, rawCalls())})
	for _, a := range bucket.Algorithms {
		limit := bucket.Limit{Algorithm: a, Requests: 100_000, Burst: 100_000, Window: 3_600_000_000}
		if a == bucket.SlidingWindowLog { // as many as the default counts by it
			limit.Requests, limit.Window = 20, 1_000_000
		}
		all.rows = append(all.rows, &row{name: a.String(), measure: direct(redis, bucketCalls(limit))})
	}
	return all
}

// direct returns a measurement of calls of a script: two connections, each with a pipeline.
func direct(redis string, c calls) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, each time.Duration) (s sample, err error) {
		const patience = 10 * time.Second
		meter, err := loadgen.NewRedisMeter(ctx, redis, patience)
		if err != nil {
			return s, err
		}
		defer meter.Close()
		var batches atomic.Int64
		errs := make([]error, 2)
		begin := time.Now()
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { errs[i] = c.send(ctx, redis, begin.Add(each), &batches) })
		}
		callers.Wait()
		took := time.Since(begin)
		for _, err := range errs {
			if err != nil {
				return s, err
			}
		}
		takes := batches.Load() * takesInFlight
		cost, err := meter.Cost(ctx, takes)
		if err != nil {
			return s, err
		}
		return sample{perSecond: float64(takes) / took.Seconds(), redisCPU: cost.CPU, scripts: cost.Scripts}, nil
	}
}

// send sends batches of calls until a time.
func (c calls) send(ctx context.Context, redis string, until time.Time, batches *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", redis)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // which ends a read
	replies := bufio.NewReader(conn)
	if _, err := conn.Write(command("SCRIPT", "LOAD", c.script)); err != nil {
		return err
	}
	if err := skipReply(replies); err != nil {
		return fmt.Errorf("SCRIPT LOAD: %w", err)
	}
	hash := fmt.Sprintf("%x", sha1.Sum([]byte(c.script))) //nolint:gosec // see above
	batch := bytes.Repeat(command(append([]string{"EVALSHA", hash}, c.words...)...), c.number)
	number := len("00000000") // at the end of a key
	keysAt, timesAt := places(batch, aKey), places(batch, aTime)
	for time.Now().Before(until) {
		clock := strconv.FormatInt(time.Now().UnixMicro(), 10)
		for _, at := range keysAt {
			copy(batch[at+len(aKey)-number:], fmt.Sprintf("%0*d", number, rand.IntN(keys)))
		}
		for _, at := range timesAt {
			copy(batch[at:], clock)
		}
		if _, err := conn.Write(batch); err != nil {
			return err
		}
		for range c.number {
			if err := skipReply(replies); err != nil {
				return fmt.Errorf("EVALSHA: %w", err)
			}
		}
		batches.Add(1)
	}
	return nil
}

// places returns where a text is in others.
func places(in []byte, text string) (at []int) {
	for from := 0; ; {
		i := bytes.Index(in[from:], []byte(text))
		if i < 0 {
			return at
		}
		at, from = append(at, from+i), from+i+len(text)
	}
}

// skipReply reads a reply, a number or a text.
func skipReply(replies *bufio.Reader) error {
	line, err := replies.ReadString('\n')
	if err != nil {
		return err
	}
	switch line[0] {
	case ':':
		return nil
	case '$':
		length, err := strconv.Atoi(line[1 : len(line)-2])
		if err != nil {
			return err
		}
		_, err = replies.Discard(length + len("\r\n"))
		return err
	}
	return errors.New(strings.TrimSpace(line))
}

// command returns a command in the protocol of Redis.
func command(words ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		_, _ = io.WriteString(&b, fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)) // a buffer takes everything
	}
	return b.Bytes()
}
