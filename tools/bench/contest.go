package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/extauthz/extauthz/tools/bench/figures"
	"github.com/extauthz/extauthz/tools/loadgen"
)

// contest is rows that are measured by turns.
type contest struct {
	name, title string
	axis        string // of growth
	fixedRate   bool   // the rows differ in latency, not in requests/s
	rows        []*row
}

// row is one server under one load.
type row struct {
	name  string
	value float64 // of growth
	// prepare starts what only this row needs, and done ends it. Rows that have it are measured one after the other.
	prepare func(context.Context) error
	done    func()
	measure func(ctx context.Context, each time.Duration) (sample, error)
	// idle is the memory of an idle connection, if it was measured.
	idle float64
}

// sample is one measurement of a row. What is unknown is 0.
type sample struct {
	perSecond, cpu, p50, p99, redisCPU, scripts, memory float64
}

// load returns a measurement by the load generator.
func load(p loadgen.Plan) func(context.Context, time.Duration) (sample, error) {
	return func(ctx context.Context, each time.Duration) (s sample, err error) {
		p.Duration = each
		r, err := loadgen.Run(ctx, p)
		switch {
		case err != nil:
			return s, err
		case r.Interrupted:
			return s, context.Cause(ctx)
		case r.Errors > 0:
			return s, fmt.Errorf("%d of %d requests failed, the first with %s: %q", r.Errors, r.Total(), r.Failures[0].Status,
				r.Failures[0].First)
		}
		s = sample{perSecond: r.AnswersPerSecond, p50: r.Latency.P50, p99: r.Latency.P99}
		if r.Server != nil {
			s.cpu, s.memory = r.Server.CPU, float64(r.Server.Memory)
		}
		if r.Redis != nil {
			s.redisCPU, s.scripts = r.Redis.CPU, r.Redis.Scripts
		}
		return s, nil
	}
}

// run measures all rows and sums them up.
func (c *contest) run(ctx context.Context, o options) (figures.Table, error) {
	samples := make([][]sample, len(c.rows))
	one := func(k, round int) error {
		each := o.each
		if round == 0 { // warms up
			each = min(each, time.Second)
		}
		fmt.Fprintf(os.Stderr, "\r\033[K%s, round %d of %d: %s", c.title, round, o.rounds, c.rows[k].name)
		s, err := c.rows[k].measure(ctx, each)
		if err != nil {
			return fmt.Errorf("%s: %w", c.rows[k].name, err)
		}
		if round > 0 {
			samples[k] = append(samples[k], s)
		}
		return nil
	}
	defer fmt.Fprint(os.Stderr, "\r\033[K")
	if c.axis == "" {
		for round := range o.rounds + 1 {
			for i := range c.rows {
				// The order rotates with the round, so that each row has each position.
				if err := one((i+round)%len(c.rows), round); err != nil {
					return figures.Table{}, err
				}
			}
		}
		return c.table(samples), nil
	}
	for k, r := range c.rows {
		err := r.prepare(ctx)
		for round := 0; round <= o.rounds && err == nil; round++ {
			err = one(k, round)
		}
		r.done()
		if err != nil {
			return figures.Table{}, err
		}
	}
	return c.table(samples), nil
}

// table sums up the samples of each row.
func (c *contest) table(samples [][]sample) figures.Table {
	t := figures.Table{Name: c.name, Title: c.title, Axis: c.axis}
	perSecond, cpu := func(s sample) float64 { return s.perSecond }, func(s sample) float64 { return s.cpu }
	redisCPU := func(s sample) float64 { return s.redisCPU }
	raw := slices.IndexFunc(c.rows, func(r *row) bool { return r.name == figures.Raw })
	for k, r := range c.rows {
		middle := func(value func(sample) float64) float64 { return over(samples[k], value).Median }
		f := figures.Row{
			Name: r.name, Value: r.value, PerSecond: over(samples[k], perSecond), CPU: over(samples[k], cpu),
			PerSecondRatio: ratio(samples[k], samples[0], perSecond), CPURatio: ratio(samples[k], samples[0], cpu),
			P50: middle(func(s sample) float64 { return s.p50 }), P99: middle(func(s sample) float64 { return s.p99 }),
			RedisCPU: over(samples[k], redisCPU), Scripts: middle(func(s sample) float64 { return s.scripts }), Idle: r.idle,
		}
		if c.fixedRate {
			f.PerSecondRatio, f.P50Ratio = 0, ratio(samples[k], samples[0], func(s sample) float64 { return s.p50 })
		}
		if c.axis != "" {
			f.Memory = middle(func(s sample) float64 { return s.memory })
		}
		if raw >= 0 {
			f.RedisRatio = ratio(samples[k], samples[raw], redisCPU)
		} else {
			f.RedisCPURatio = ratio(samples[k], samples[0], redisCPU)
		}
		// The same row of another build.
		base := slices.IndexFunc(c.rows, func(other *row) bool { return other.name == r.name+ofBase })
		if base >= 0 {
			f.BaseRate, f.BaseCPU = ratio(samples[k], samples[base], perSecond), ratio(samples[k], samples[base], cpu)
		}
		t.Rows = append(t.Rows, f)
	}
	return t
}

func over(samples []sample, value func(sample) float64) figures.Spread {
	var values []float64
	for _, s := range samples {
		values = append(values, value(s))
	}
	return figures.Over(values)
}

// ratio returns the median of the ratios of all rounds, 0 if a value is unknown.
func ratio(samples, base []sample, value func(sample) float64) float64 {
	var values []float64
	for k := range samples {
		if value(base[k]) > 0 {
			values = append(values, value(samples[k])/value(base[k]))
		}
	}
	return figures.Over(values).Median
}
