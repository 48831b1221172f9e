// Command bench compares the service with a gRPC handler that returns OK at once, and with a minimal script that Redis
// runs. It measures them by turns in the same run, because absolute figures depend on the machine and its load.
// `make bench` runs it and writes docs/performance.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == emptyServer {
		serveEmpty(os.Args[2])
		return
	}
	endWithParent()
	var o options
	flag.StringVar(&o.series, "series", "main,envoy,low", "what to measure: "+seriesNames()+"; several with commas")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; a round measures each row once")
	flag.DurationVar(&o.each, "each", 3*time.Second, "time to measure one row in one round")
	flag.IntVar(&o.inFlight, "in-flight", 64, "requests in flight")
	flag.IntVar(&o.connections, "connections", 4, "connections")
	flag.StringVar(&o.redis, "redis", "", "host:port of a Redis; default: start redis-server")
	flag.StringVar(&o.base, "base", "", "the binary of another build of the service, to compare each row with")
	flag.StringVar(&o.peer, "peer", "", "peer: host:port of another rate limit service, which has the rules of "+
		"tools/bench/rules.yaml")
	flag.StringVar(&o.peerRedis, "peer-redis", "", "peer: host:port of its Redis, to measure it")
	flag.StringVar(&o.peerName, "peer-name", "the peer", "peer: the name of its rows, such as its version and settings")
	flag.IntVar(&o.mostKeys, "most-keys", 1_000_000, "growth: the largest number of keys, of 1000 and more")
	flag.IntVar(&o.mostConnections, "most-connections", 10_000, "growth: the largest number of connections, of 1 and more")
	flag.BoolVar(&o.write, "write", false, "write the results into docs/performance.md and tools/bench/figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fail(err)
	}
}

type options struct {
	series                        string
	rounds, inFlight, connections int
	each                          time.Duration
	redis, base                   string
	peer, peerRedis, peerName     string
	mostKeys, mostConnections     int
	write                         bool
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}
