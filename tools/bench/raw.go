package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

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

// calls are calls of a script, to be sent as one batch.
type calls struct {
	script string
	number int // in a batch
	// next returns the arguments of the next call.
	next func() (keys []string, args []any)
}

// rawCalls are calls of the minimal script.
func rawCalls() calls {
	return calls{rawScript, takesInFlight, func() ([]string, []any) {
		return []string{aKey()}, []any{time.Now().UnixMicro()}
	}}
}

// bucketCalls are calls of the script of the service, with buckets of one limit.
func bucketCalls(limit bucket.Limit) calls {
	r := bucket.Request{Takes: []bucket.Take{{Limit: limit, Cost: 1}}}
	var args []byte
	for range takesInCall {
		args = r.AppendArgs(args, bucket.WithoutNotes, 0)
	}
	return calls{bucket.Script(), takesInFlight / takesInCall, func() ([]string, []any) {
		names := make([]string, takesInCall)
		for i := range names {
			names[i] = aKey() + " " + string(limit.Algorithm.Letter())
		}
		return names, []any{"echo", args}
	}}
}

func aKey() string { return fmt.Sprintf("bench_user_%08d", rand.IntN(keys)) }

// scripts returns rows of the minimal script and the one of the service, called directly.
func scripts(address string) *contest {
	all := &contest{name: "scripts", title: "The script of each algorithm, called directly for 16 buckets at once"}
	all.rows = append(all.rows, &row{name: figures.Raw, measure: direct(address, rawCalls())})
	for _, a := range bucket.Algorithms {
		limit := bucket.Limit{Algorithm: a, Requests: 100_000, Burst: 100_000, Window: 3_600_000_000}
		if a == bucket.SlidingWindowLog { // as many as the default counts by it
			limit.Requests, limit.Window = 20, 1_000_000
		}
		all.rows = append(all.rows, &row{name: a.String(), measure: direct(address, bucketCalls(limit))})
	}
	return all
}

// direct returns a measurement of calls of a script: two connections, each with a pipeline.
func direct(address string, c calls) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, each time.Duration) (s sample, err error) {
		const patience = 10 * time.Second
		meter, err := loadgen.NewRedisMeter(ctx, address, patience)
		if err != nil {
			return s, err
		}
		defer meter.Close()
		const connections = 2
		client := redis.NewClient(&redis.Options{
			Addr: address, PoolSize: connections, MaxRetries: -1, DialTimeout: patience, ReadTimeout: patience,
		})
		defer client.Close()
		var batches atomic.Int64
		begin := time.Now()
		var callers errgroup.Group
		for range connections {
			callers.Go(func() error { return c.send(ctx, client, begin.Add(each), &batches) })
		}
		if err := callers.Wait(); err != nil {
			return s, err
		}
		took := time.Since(begin)
		takes := batches.Load() * takesInFlight
		cost, err := meter.Cost(ctx, takes)
		if err != nil {
			return s, err
		}
		return sample{perSecond: float64(takes) / took.Seconds(), redisCPU: cost.CPU, scripts: cost.Scripts}, nil
	}
}

// send sends batches of calls until a time.
func (c calls) send(ctx context.Context, client *redis.Client, until time.Time, batches *atomic.Int64) error {
	script := redis.NewScript(c.script)
	if err := script.Load(ctx, client).Err(); err != nil {
		return fmt.Errorf("SCRIPT LOAD: %w", err)
	}
	for time.Now().Before(until) {
		_, err := client.Pipelined(ctx, func(batch redis.Pipeliner) error {
			for range c.number {
				names, args := c.next()
				script.EvalSha(ctx, batch, names, args...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("EVALSHA: %w", err)
		}
		batches.Add(1)
	}
	return nil
}
