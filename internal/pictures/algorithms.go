package main

import (
	"fmt"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// rows are the algorithms from the coarsest to the finest, and what to look at.
var rows = []struct {
	algorithm bucket.Algorithm
	character string
}{
	{bucket.FixedWindow, "at 1:00 everything is there again: twice the limit around the edge"},
	{bucket.SlidingWindowCounter, "the minute before fades away, evenly, during the next one"},
	{bucket.SlidingWindowLog, "each comes back exactly a minute after it was used"},
	{bucket.TokenBucket, "a burst at once, then one token every 12 s"},
	{bucket.LeakyBucket, "lets in the same; with max_delay they wait, and leave one every 12 s"},
}

// Where things are in the picture, in px.
const (
	left      = 44.0 // of the plots
	perSecond = 7.5
	right     = left + (end-begin)*perSecond
	perUnit   = 8.0 // of what is used: the limit is 40 px high
	firstRow  = 104.0
	rowHeight = 100.0
	plotTop   = 26.0 // within a row
	baseline  = plotTop + perMinute*perUnit
	marks     = baseline + 17 // where marks stand
	fifteen   = right + 44    // the columns of figures
	sixty     = right + 104
)

// xOf is where a time, in µs, is.
func xOf(at int64) float64 { return left + float64(at-begin*second)*perSecond/second }

// algorithms draws what each algorithm does with the same client.
func algorithms() string {
	bottom := firstRow + rowHeight*float64(len(rows)) + 16
	s := newSVG(int(bottom)+40, "Five algorithms and the same client", describe())
	s.text(20, 32, "title", "Five algorithms and the same client")
	s.text(20, 54, "dim", "A limit of 5 a minute, and a client that tries once a second from 0:50 on.")
	legend(s, 78)

	s.text((fifteen+sixty)/2, 54, "small dim middle", "most let through")
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
	s.text(42, y, "small", "used of the limit")
	s.strokes([]point{{164, y + 1}}, 12, "passed")
	s.text(173, y, "small", "let through")
	s.strokes([]point{{262, y + 1}}, 5, "denied")
	s.text(270, y, "small", "denied")
	s.circle(point{332, y - 4}, "leaves")
	s.text(342, y, "small", "leaves the queue (leaky_bucket with max_delay)")
}

// row draws what one algorithm did, from this y downwards.
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

	// The marks differ in height and form, not by colour alone.
	s.strokes(places(y+marks, h.denied), 5, "denied")
	s.strokes(places(y+marks, h.passed), 12, "passed")
	for _, p := range places(y+marks+9, h.leaves) {
		s.circle(p, "leaves")
	}
	s.text(fifteen, y+baseline-12, "figure middle", fmt.Sprint(most(h.passed, 15*second)))
	s.text(sixty, y+baseline-12, "figure middle", fmt.Sprint(most(h.passed, 60*second)))
}

// line is what is used, as a line over this baseline; what does not change is not said twice.
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

// places are those of the times that the picture shows.
func places(y float64, times []int64) []point {
	var points []point
	for _, at := range times {
		if at <= end*second {
			points = append(points, point{xOf(at), y})
		}
	}
	return points
}

// describe says the picture in words, from the same figures.
func describe() string {
	text := "A limit of 5 a minute, and a client that tries once a second from 0:50 to 2:04."
	for _, r := range rows {
		h := simulate(r.algorithm)
		text += fmt.Sprintf(" %s lets %d of %d through, at most %d within 15 seconds and %d within 60: %s.", r.algorithm,
			len(h.passed), len(h.passed)+len(h.denied), most(h.passed, 15*second), most(h.passed, 60*second), r.character)
	}
	return text
}
