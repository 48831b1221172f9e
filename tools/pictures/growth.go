package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/extauthz/extauthz/tools/bench/figures"
)

// plots are the plots of the picture: a table, its title, and the step of its axis, in µs.
var plots = []struct {
	table, title string
	step         float64
}{
	{"keys-memory", "Keys, in memory", 2}, {"keys-redis", "Keys, in Redis", 2},
	{"descriptors", "Descriptors of a request", 2}, {"rules", "Rules", 2},
	{"connections", "Connections, 5,000 requests/s", 50},
	{"connections-tls", "Connections with TLS, 5,000 requests/s", 50},
}

// growth draws what a request costs with more keys, descriptors, rules and connections: one plot for each.
func growth(report figures.Report) string {
	const columns, wide, high, top = 2, 390.0, 206.0, 74.0
	const title = "CPU of the service for a request"
	s, description := &svg{}, title+"."
	for i, p := range plots {
		t := report.Tables("growth", p.table)[0]
		for _, r := range t.Rows {
			description += fmt.Sprintf(" %s %s: %.3g µs.", r.Name, t.Axis, r.CPU.Median)
		}
		s.plot(t, p.title, p.step, 20+wide*float64(i%columns), top+high*float64(i/columns), wide-30, high-70)
	}
	all := newSVG(int(top+high*float64(len(plots)/columns))+6, title, description)
	all.text(20, 32, "title", title)
	all.text(20, 54, "dim", "In µs; horizontal axes are logarithmic. "+
		"The last two plots have another scale: few requests share a wake-up.")
	return all.b.String() + s.String()
}

// plot draws the CPU time of the rows of a table over their values, whose axis is logarithmic.
func (s *svg) plot(t figures.Table, title string, step, x, y, wide, high float64) {
	const ticks, edge = 5, 34.0 // edge is the width of the labels of an axis
	base, first, last := y+28+high, t.Rows[0].Value, t.Rows[len(t.Rows)-1].Value
	s.text(x, y+14, "name", title)
	for i := range ticks + 1 {
		at := base - high*float64(i)/ticks
		s.line(x+edge, at, x+wide, at, "rule")
		s.text(x+edge-8, at+4, "small dim end", fmt.Sprint(step*float64(i)))
	}
	var points []point
	for _, r := range t.Rows {
		along := math.Log(r.Value/first) / math.Log(last/first)
		at := point{x + edge + 30 + (wide-edge-70)*along, base - high*r.CPU.Median/step/ticks}
		points = append(points, at)
		s.circle(at, "leaves")
		s.text(at.x, base+18, "small dim middle", strings.ReplaceAll(r.Name, ",000,000", "M"))
	}
	s.area(points, base)
}
