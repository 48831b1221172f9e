package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/loadgen"
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

// rawBatch is how many calls share a write, as many as a server with 64 requests in flight can gather.
const rawBatch = 32

// raw returns a measurement of the minimal script, called directly: two connections, each with a pipeline.
func raw(redis string) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, each time.Duration) (s sample, err error) {
		const patience = 10 * time.Second
		meter, err := loadgen.NewRedisMeter(ctx, redis, patience)
		if err != nil {
			return s, err
		}
		defer meter.Close()
		var done atomic.Int64
		errs := make([]error, 2)
		begin := time.Now()
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { errs[i] = callRaw(ctx, redis, begin.Add(each), &done) })
		}
		callers.Wait()
		took := time.Since(begin)
		for _, err := range errs {
			if err != nil {
				return s, err
			}
		}
		cost, err := meter.Cost(ctx, done.Load())
		if err != nil {
			return s, err
		}
		return sample{
			perSecond: float64(done.Load()) / took.Seconds(), redisCPU: cost.CPU, scripts: cost.Scripts,
		}, nil
	}
}

// callRaw calls the script until a time.
func callRaw(ctx context.Context, redis string, until time.Time, done *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", redis)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // which ends a read
	replies := bufio.NewReader(conn)
	if _, err := conn.Write(command("SCRIPT", "LOAD", rawScript)); err != nil {
		return err
	}
	for range 2 { // $40 and the hash
		if line, err := replies.ReadString('\n'); err != nil || line[0] == '-' {
			return fmt.Errorf("SCRIPT LOAD: %w %s", err, line)
		}
	}
	hash := fmt.Sprintf("%x", sha1.Sum([]byte(rawScript))) //nolint:gosec // see above
	key, now := "bench_user_00000000", "0000000000000000"
	call := command("EVALSHA", hash, "1", key, now)
	batch := bytes.Repeat(call, rawBatch)
	keyAt, nowAt := bytes.Index(call, []byte("_0000"))+1, bytes.LastIndex(call, []byte(now))
	for time.Now().Before(until) {
		clock := strconv.FormatInt(time.Now().UnixMicro(), 10)
		for i := range rawBatch {
			one := batch[i*len(call):]
			copy(one[keyAt:], fmt.Sprintf("%08d", rand.IntN(keys)))
			copy(one[nowAt:], clock)
		}
		if _, err := conn.Write(batch); err != nil {
			return err
		}
		for range rawBatch {
			line, err := replies.ReadSlice('\n')
			if err != nil {
				return err
			}
			if line[0] != ':' {
				return fmt.Errorf("EVALSHA: %s", line)
			}
		}
		done.Add(rawBatch)
	}
	return nil
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
