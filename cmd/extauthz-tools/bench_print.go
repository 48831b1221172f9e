package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/tools/loadgen"
)

// printBench prints the result of a measurement as a table.
func (p *program) printBench(r *loadgen.Result) error {
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 3, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	load := fmt.Sprintf("%s in flight", suggest.Counted(r.InFlight, "request"))
	if r.Rate > 0 {
		load = fmt.Sprintf("%s requests/s", loadgen.Thousands(r.Rate))
	}
	took := fmt.Sprintf("%.1f s", r.Seconds)
	if r.Interrupted {
		took += ", interrupted"
	}
	row("load", "%s, %s over %s, keys %s, headers of %s", took, load, suggest.Counted(r.Connections, "connection"), r.Keys,
		r.Client)
	if r.Warning != "" {
		row("warning", "%s", r.Warning)
	}
	row("answers/s", "%s", loadgen.Thousands(r.AnswersPerSecond))
	row("answers", "%s: %s allowed, %s denied (%.1f %%)", loadgen.Thousands(r.Answers), loadgen.Thousands(r.Allowed),
		loadgen.Thousands(r.Denied), 100*float64(r.Denied)/float64(max(r.Answers, 1)))
	row("errors", "%s", loadgen.Thousands(r.Errors))
	for _, f := range r.Failures {
		row("  "+f.Status, "%s, the first: %q", loadgen.Thousands(f.Count), f.First)
	}
	if r.Reconnects > 0 {
		row("reconnects", "%s", loadgen.Thousands(r.Reconnects))
	}
	if r.Unsent > 0 {
		row("not sent", "%s requests that were due: the service or this program is too slow for the rate",
			loadgen.Thousands(r.Unsent))
	}
	l := r.Latency
	row("latency", "p50 %s, p99 %s, p99.9 %s, max %s", micros(l.P50), micros(l.P99), micros(l.P999), micros(l.Max))
	if s := r.Server; s != nil {
		row("server", "%s of CPU a request, %.1f MB of memory (process %s)", micros(s.CPU), float64(s.Memory)/1e6,
			strings.Trim(fmt.Sprint(s.PIDs), "[]"))
	} else {
		row("server", "unknown: no process of yours on this machine listens there")
	}
	if d := r.Redis; d != nil {
		row("redis", "%.2f commands, %.3f script calls and %s of CPU a request", d.Commands, d.Scripts, micros(d.CPU))
	}
	return w.Flush()
}

// micros writes a time of so many µs with three digits.
func micros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.3g s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.3g ms", us/1e3)
	}
	return fmt.Sprintf("%.3g µs", us)
}
