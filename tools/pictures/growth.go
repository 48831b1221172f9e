package main

import (
	"fmt"
	"math"

	"github.com/extauthz/extauthz/tools/bench/figures"
)

// growth draws what a request costs with more keys, descriptors, rules and connections: one plot for each.
func growth(report figures.Report) string {
	const columns, wide, high, top = 2, 390.0, 190.0, 64.0
	tables := report.Tables("growth", "keys-memory", "keys-redis", "descriptors", "rules", "connections",
		"connections-tls")
	description := "CPU time of the server for a request."
	for _, t := range tables {
		for _, r := range t.Rows {
			description += fmt.Sprintf(" %s %s: %.3g µs.", r.Name, t.Axis, r.CPU.Median)
		}
	}
	rows := (len(tables) + columns - 1) / columns
	s := newSVG(int(top+high*float64(rows))+16, "How costs grow", description)
	s.text(20, 32, "title", "How costs grow")
	s.text(20, 54, "dim", "CPU time of the server for a request, in µs. Medians of make bench-growth.")
	for i, t := range tables {
		s.plot(t, 20+wide*float64(i%columns), top+high*float64(i/columns), wide-20, high-20)
	}
	return s.String()
}

// plot draws the CPU time of the rows of a table over their values, whose axis is logarithmic.
func (s *svg) plot(t figures.Table, x, y, wide, high float64) {
	s.text(x, y+16, "name", cut(t.Title, 54))
	const labels = 46 // above and below
	most, first, last := 0.0, math.Inf(1), 0.0
	for _, r := range t.Rows {
		most, first, last = max(most, r.CPU.Median), min(first, r.Value), max(last, r.Value)
	}
	if most == 0 || first >= last {
		return
	}
	var points []point
	base := y + high - 20
	for _, r := range t.Rows {
		at := point{
			x + 30 + (wide-70)*math.Log(r.Value/first)/math.Log(last/first), base - (high-labels-20)*r.CPU.Median/most,
		}
		points = append(points, at)
		s.circle(at, "leaves")
		s.text(at.x, at.y-7, "small middle", fmt.Sprintf("%.3g", r.CPU.Median))
		s.text(at.x, base+16, "small dim middle", r.Name)
	}
	s.area(points, base)
	s.line(x, base, x+wide, base, "rule")
}
