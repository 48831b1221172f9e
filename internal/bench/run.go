package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// run measures all servers by turns and prints a table, the empty handler being 1.
func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "extauthz-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	servers, err := start(ctx, dir, o)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	results := make([][]sample, len(servers))
	for round := range o.rounds + 1 {
		for i := range servers {
			// The order turns with the round, so that no server always comes after the same one.
			k := (i + round) % len(servers)
			fmt.Fprintf(os.Stderr, "\rround %d of %d: %-20s", round, o.rounds, servers[k].name)
			s, err := measure(ctx, servers[k], o)
			if err != nil {
				return fmt.Errorf("%s: %w", servers[k].name, err)
			}
			if round > 0 { // the first warms up
				results[k] = append(results[k], s)
			}
		}
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
	fmt.Printf("%d rounds of %s, %d requests in flight over %d connections; medians, ratios to %q paired by round\n\n",
		o.rounds, o.each, o.concurrency, o.connections, servers[0].name)
	fmt.Printf("%-22s %12s %8s %16s %8s\n", "server", "requests/s", "ratio", "server µs CPU/rq", "ratio")
	for i, s := range servers {
		fmt.Printf("%-22s %12.0f %8.2f %16.1f %8.2f\n", s.name,
			median(results[i], func(k int) float64 { return results[i][k].perSecond }),
			median(results[i], func(k int) float64 { return results[i][k].perSecond / results[0][k].perSecond }),
			median(results[i], func(k int) float64 { return results[i][k].cpu }),
			median(results[i], func(k int) float64 { return results[i][k].cpu / results[0][k].cpu }))
	}
	return nil
}

func median(samples []sample, value func(int) float64) float64 {
	values := make([]float64, len(samples))
	for k := range samples {
		values[k] = value(k)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// start builds the service and starts all servers to compare, the empty handler first.
func start(ctx context.Context, dir string, o options) ([]*server, error) {
	binary := filepath.Join(dir, "extauthz")
	if err := build(ctx, binary); err != nil {
		return nil, err
	}
	rules := filepath.Join(dir, "rules")
	if err := os.Mkdir(rules, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(rules, "bench.yaml"), []byte(benchRules), 0o644); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	list := []struct {
		name string
		env  []string
		args []string
	}{
		{name: "empty handler", args: []string{self, emptyServer}},
		{name: "memory", args: []string{binary}, env: []string{"RESPONSE_HEADERS=off", "RESPONSE_BODY=off"}},
		{name: "memory, headers", args: []string{binary}},
	}
	if o.redis != "" {
		list = append(list, list[2])
		list[3].name, list[3].env = "redis, headers", []string{"REDIS_URL=" + o.redis, "REDIS_TIMEOUT=1s"}
	}
	var servers []*server
	for _, l := range list {
		s, err := startServer(ctx, l.name, l.args, append(l.env, "RUNTIME_ROOT="+dir, "RUNTIME_APPDIRECTORY=rules", "DRAIN_DELAY=0s"))
		if err != nil {
			for _, s := range servers {
				s.stop()
			}
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// benchRules: one descriptor, ten thousand keys, never denied.
const benchRules = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10000000}
`
