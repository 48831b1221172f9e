package main

import (
	"fmt"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// rows are the algorithms from the coarsest to the finest, each with one sentence about it.
var rows = []struct {
	algorithm bucket.Algorithm
	character string
}{
	{bucket.FixedWindow, "the count restarts at 1:00: up to twice the limit around that time"},
	{bucket.SlidingWindowCounter, "the previous minute loses its weight evenly during the next one"},
	{bucket.SlidingWindowLog, "each unit is available again exactly one minute after its use"},
	{bucket.TokenBucket, "a burst of 5 at once, then one token every 12 s"},
	{bucket.LeakyBucket, "allows the same; with max_delay they wait, and leave every 12 s"},
}

// Positions and sizes in the picture, in px.
const (
	left      = 44.0 // of the plots
	perSecond = 7.5
	right     = left + (end-begin)*perSecond
	perUnit   = 8.0 // height of one used unit: the limit is 40 px high
	firstRow  = 104.0
	rowHeight = 100.0
	plotTop   = 26.0 // within a row
	baseline  = plotTop + perMinute*perUnit
	marks     = baseline + 17 // the foot of the marks
	fifteen   = right + 44    // the columns of figures
	sixty     = right + 104
)

// xOf returns the position of a time in µs.
func xOf(at int64) float64 { return left + float64(at-begin*second)*perSecond/second }

// algorithms draws the decisions of each algorithm for the same client.
func algorithms() string {
	bottom := firstRow + rowHeight*float64(len(rows)) + 16
	s := newSVG(int(bottom)+40, "Five algorithms, one client", describe())
	s.text(20, 32, "title", "Five algorithms, one client")
	s.text(20, 54, "dim", "The limit is 5 a minute. The client sends one request a second, from 0:50 on.")
	legend(s, 78)

	s.text((fifteen+sixty)/2, 54, "small dim middle", "most allowed")
	s.text(fifteen, 78, "small dim middle", "in 15 s")
	s.text(sixty, 78, "small dim middle", "in 60 s")
	for i, r := range rows {
		row(s, firstRow+rowHeight*float64(i), r.algorithm.String(), r.character, simulate(r.algorithm))
	}
	s.line(left, bottom, right, bottom, "rule")
	for t := int64(50); t < end; t += 10 {
		s.line(xOf(t*second), bottom, xOf(t*second), bottom+5, "rule")
		s.text(xOf(t*second), bottom+20, "small dim middle", fmt.Sprintf("%d:%02d", t/60, t%60))
	}
	return s.String()
}

func legend(s *svg, y float64) {
	s.area([]point{{20, y - 8}, {36, y - 8}}, y+1)
	s.text(42, y, "small", "used units")
	s.strokes([]point{{164, y + 1}}, 12, "passed")
	s.text(173, y, "small", "allowed")
	s.strokes([]point{{262, y + 1}}, 5, "denied")
	s.text(270, y, "small", "denied")
	s.circle(point{332, y - 4}, "leaves")
	s.text(342, y, "small", "leaves the queue (leaky_bucket with max_delay)")
}

// row draws the decisions of one algorithm, from y downwards.
func row(s *svg, y float64, name, character string, h history) {
	s.text(20, y+14, "name code", name)
	s.text(218, y+14, "small dim", character)

	s.text(left-8, y+plotTop+5, "small dim end", fmt.Sprint(perMinute))
	s.text(left-8, y+baseline+3, "small dim end", "0")
	s.line(left, y+plotTop, right, y+plotTop, "edge")
	s.line(left, y+baseline, right, y+baseline, "rule")
	for minute := int64(60); minute < end; minute += 60 {
		s.line(xOf(minute*second), y+plotTop-5, xOf(minute*second), y+marks+3, "edge")
	}
	s.area(line(h.used, y+baseline), y+baseline)

	// The marks differ in height and form, not only in colour.
	s.strokes(places(y+marks, h.denied), 5, "denied")
	s.strokes(places(y+marks, h.passed), 12, "passed")
	for _, p := range places(y+marks+9, h.leaves) {
		s.circle(p, "leaves")
	}
	s.text(fifteen, y+baseline-12, "figure middle", fmt.Sprint(most(h.passed, 15*second)))
	s.text(sixty, y+baseline-12, "figure middle", fmt.Sprint(most(h.passed, 60*second)))
}

// line returns the used units as a line above this baseline, without the points in the middle of a level stretch.
func line(levels []level, baseline float64) []point {
	var points []point
	for i, l := range levels {
		if i > 0 && i < len(levels)-1 && l.used == levels[i-1].used && l.used == levels[i+1].used {
			continue
		}
		points = append(points, point{xOf(l.at), baseline - float64(l.used)*perUnit/grain})
	}
	return points
}

// places returns the positions of those times that the picture shows.
func places(y float64, times []int64) []point {
	var points []point
	for _, at := range times {
		if at <= end*second {
			points = append(points, point{xOf(at), y})
		}
	}
	return points
}

// describe describes the picture in words, from the same simulation.
func describe() string {
	text := "The limit is 5 a minute. The client sends one request a second, from 0:50 to 2:04."
	for _, r := range rows {
		h := simulate(r.algorithm)
		text += fmt.Sprintf(" %s allows %d of %d requests, at most %d within 15 seconds and %d within 60: %s.", r.algorithm,
			len(h.passed), len(h.passed)+len(h.denied), most(h.passed, 15*second), most(h.passed, 60*second), r.character)
	}
	return text
}
