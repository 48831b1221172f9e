package main

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// comparison is servers that receive the same calls. The empty handler is the first.
type comparison struct {
	title   string
	call    call
	servers []*server
}

// run measures the servers of each comparison by turns and prints a table, in which the empty handler is 1.
func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "extauthz-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	comparisons, stop, err := start(ctx, dir, o)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Printf("%d rounds of %s, %d requests in flight over %d connections. Figures are medians. "+
		"Ratios are to the first row of the same round.\n", o.rounds, o.each, o.concurrency, o.connections)
	for _, c := range comparisons {
		if err := c.run(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
	}
	return nil
}

func (c *comparison) run(ctx context.Context, o options) error {
	results := make([][]sample, len(c.servers))
	for round := range o.rounds + 1 {
		for i := range c.servers {
			// The order rotates with the round, so that each server has each position.
			k := (i + round) % len(c.servers)
			fmt.Fprintf(os.Stderr, "\r%s, round %d of %d: %-24s", c.title, round, o.rounds, c.servers[k].name)
			s, err := measure(ctx, c.servers[k], c.call, o)
			if err != nil {
				return fmt.Errorf("%s: %w", c.servers[k].name, err)
			}
			if round > 0 { // the first round warms up
				results[k] = append(results[k], s)
			}
		}
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
	c.print(results)
	return nil
}

// print writes a row for each server, with ratios to the first server. A server with a base also has ratios to its
// base.
func (c *comparison) print(results [][]sample) {
	perSecond := func(s sample) float64 { return s.perSecond }
	cpu := func(s sample) float64 { return s.cpu }
	fmt.Printf("\n%-26s %12s %8s %16s %8s\n", c.title, "requests/s", "ratio", "server µs CPU/rq", "ratio")
	for i, s := range c.servers {
		fmt.Printf("%-26s %12.0f %8.2f %16.1f %8.2f", s.name,
			median(results[i], perSecond), medianRatio(results[i], results[0], perSecond),
			median(results[i], cpu), medianRatio(results[i], results[0], cpu))
		if k := slices.Index(c.servers, s.base); k >= 0 {
			fmt.Printf("   %.3f of the base's requests/s, %.3f of its CPU",
				medianRatio(results[i], results[k], perSecond), medianRatio(results[i], results[k], cpu))
		}
		fmt.Println()
	}
}

func median(samples []sample, value func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for k, s := range samples {
		values[k] = value(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// medianRatio returns the median of the ratios of all rounds.
func medianRatio(samples, base []sample, value func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for k := range samples {
		values[k] = value(samples[k]) / value(base[k])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
