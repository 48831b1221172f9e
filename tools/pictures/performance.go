package main

import (
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/tools/bench/figures"
	"github.com/extauthz/extauthz/tools/loadgen"
)

// performance draws the tables of the closed loops as bars: requests per second, and CPU time of the server.
func performance(report figures.Report) string {
	const (
		labels, rateX, cpuX, wide = 20.0, 270.0, 560.0, 150.0
		firstTable, line, gap     = 84.0, 20.0, 34.0
	)
	tables := report.Tables("main", "memory", "redis", "ten", "hot", "check")
	height, mostRate, mostCPU := firstTable, 1.0, 1.0
	description := "Medians."
	for _, t := range tables {
		height += gap + line*float64(len(t.Rows))
		for _, r := range t.Rows {
			mostRate, mostCPU = max(mostRate, r.PerSecond.Median), max(mostCPU, r.CPU.Median)
			description += fmt.Sprintf(" %s, %s: %.0f requests/s, %.3g µs.", t.Title, r.Name, r.PerSecond.Median, r.CPU.Median)
		}
	}
	s := newSVG(int(height)+10, "Requests per second, and CPU time of each", description)
	s.text(labels, 32, "title", "Requests per second, and CPU time of each")
	s.text(labels, 54, "dim", "Medians of make bench. The load, the servers and Redis share the machine.")
	s.text(rateX, firstTable-8, "small dim", "requests/s")
	s.text(cpuX, firstTable-8, "small dim", "CPU of the server, µs a request")
	y := firstTable
	for _, t := range tables {
		s.text(labels, y+14, "name", t.Title)
		y += 24
		for _, r := range t.Rows {
			s.text(labels, y+13, "small", cut(r.Name, 40))
			s.bar(rateX, y+3, wide*r.PerSecond.Median/mostRate, loadgen.Thousands(r.PerSecond.Median))
			if r.CPU.Median > 0 {
				s.bar(cpuX, y+3, wide*r.CPU.Median/mostCPU, fmt.Sprintf("%.3g", r.CPU.Median))
			}
			y += line
		}
		y += gap - 24
	}
	return s.String()
}

// bar draws a horizontal bar with its value at the end.
func (s *svg) bar(x, y, length float64, value string) {
	s.printf(`<rect class="bar" x="%s" y="%s" width="%s" height="12" rx="2"/>`, num(x), num(y), num(max(length, 1)))
	s.text(x+length+6, y+10, "small", value)
}

// cut shortens a name to n letters.
func cut(name string, n int) string {
	if letters := []rune(name); len(letters) > n {
		return strings.TrimSpace(string(letters[:n-1])) + "…"
	}
	return name
}
