package main

import (
	"fmt"

	"github.com/extauthz/extauthz/tools/bench/figures"
	"github.com/extauthz/extauthz/tools/loadgen"
)

// measures are the rows of the picture: a table, what is compared, its unit, and what is better.
var measures = []struct {
	table, title, unit, better string
	value                      func(figures.Row) (_ figures.Spread, ratio float64)
}{
	{"peer-one", "Throughput, 1 descriptor", " requests/s", "more is better →", throughput},
	{"peer-ten", "Throughput, 10 descriptors", " requests/s", "more is better →", throughput},
	{"peer-rate", "CPU of the service at 2,000 requests/s", " µs a request", "← less is better",
		func(r figures.Row) (figures.Spread, float64) { return r.CPU, r.CPURatio }},
	{"peer-rate", "CPU of Redis at 2,000 requests/s", " µs a request", "← less is better",
		func(r figures.Row) (figures.Spread, float64) { return r.RedisCPU, r.RedisCPURatio }},
}

func throughput(r figures.Row) (figures.Spread, float64) { return r.PerSecond, r.PerSecondRatio }

// performance draws the service beside envoyproxy/ratelimit, whose bars all have the length 1.
func performance(report figures.Report) string {
	const left, one, top, high = 20.0, 96.0, 104.0, 84.0
	const title, peer, ours = "Beside envoyproxy/ratelimit", 0, 1 // rows of the tables
	s, description := &svg{}, "Medians of make bench-peers."
	for i, m := range measures {
		t := report.Tables("peer", m.table)[0]
		y := top + high*float64(i)
		s.text(left, y, "name", m.title)
		s.text(width-left, y, "dim end", m.better)
		description += fmt.Sprintf(" %s, %s:", m.title, m.better)
		for k, class := range []string{peer: "base", ours: "bar"} {
			v, ratio := m.value(t.Rows[k])
			text := loadgen.Thousands(v.Median) + m.unit
			description += " " + t.Rows[k].Name + " " + text + "."
			if k == ours {
				text = fmt.Sprintf("%.1f × (%s)", ratio, text)
			}
			s.bar(left, y+10+24*float64(k), one*ratio, class, text)
		}
	}
	all := newSVG(int(top+high*float64(len(measures)))-4, title, description)
	all.text(left, 32, "title", title)
	all.bar(left, 46, 20, "base", "envoyproxy/ratelimit, which is 1")
	all.bar(left+270, 46, 20, "bar", "extauthz, token bucket, in Redis")
	return all.b.String() + s.String()
}

// bar draws a horizontal bar with a text at its end.
func (s *svg) bar(x, y, length float64, class, text string) {
	s.printf(`<rect class="%s" x="%s" y="%s" width="%s" height="18" rx="2"/>`, class, num(x), num(y), num(length))
	s.text(x+length+8, y+14, "", text)
}
