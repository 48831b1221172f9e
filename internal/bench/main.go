// Command bench measures ratios: the service against a gRPC handler that returns OK at once, in the same run and by turns, since
// absolute figures of one machine on one day say little. `make bench` runs it.
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
	flag.StringVar(&o.redis, "redis", "", "host:port of a Redis to measure the service with as well")
	flag.StringVar(&o.base, "base", "", "another build of the service, such as an earlier one, to measure each row against")
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
