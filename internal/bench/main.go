// Command bench compares the service with a gRPC handler that returns OK at once, and prints ratios. It measures both
// in the same run and by turns, because absolute figures depend on the machine and its load. `make bench` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == emptyServer {
		serveEmpty(os.Args[2])
		return
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 7, "rounds; a round measures each server once")
	flag.DurationVar(&o.each, "each", 2*time.Second, "time to measure one server in one round")
	flag.IntVar(&o.concurrency, "concurrency", 64, "requests in flight")
	flag.IntVar(&o.connections, "connections", 4, "gRPC connections")
	flag.StringVar(&o.redis, "redis", "", "host:port of a Redis; adds a measurement of the service with Redis")
	flag.StringVar(&o.base, "base", "", "the binary of another build of the service, to compare each row with")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds, concurrency, connections int
	each                             time.Duration
	redis, base                      string
}
