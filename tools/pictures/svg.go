package main

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// width equals the width of a README on GitHub, so that GitHub does not scale the text.
const width = 800

// svg is a picture that is being drawn. Coordinates are pixels, y grows downwards.
type svg struct{ b strings.Builder }

// style sets all colours by class. A picture in a README is an image: the page's style sheet and scripts do not
// apply, but prefers-color-scheme does. The picture has its own background, because the page's colours may differ
// from that preference.
//
//go:embed style.css
var style string

// newSVG begins a picture. A screen reader reads out the title and the description.
func newSVG(height int, title, description string) *svg {
	s := &svg{}
	s.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`role="img" aria-labelledby="title desc">`, width, height, width, height)
	s.printf(`<title id="title">%s</title>`, escape(title))
	s.printf(`<desc id="desc">%s</desc>`, escape(description))
	s.printf("<style>\n%s</style>", style)
	s.printf(`<rect class="paper" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`, width-1, height-1)
	return s
}

func (s *svg) String() string { return s.b.String() + "</svg>\n" }

// printf writes an element on its own line.
func (s *svg) printf(format string, args ...any) { fmt.Fprintf(&s.b, format+"\n", args...) }

func (s *svg) text(x, y float64, class, text string) {
	s.printf(`<text class="%s" x="%s" y="%s">%s</text>`, class, num(x), num(y), escape(text))
}

func (s *svg) line(x1, y1, x2, y2 float64, class string) {
	s.printf(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, num(x1), num(y1), num(x2), num(y2))
}

type point struct{ x, y float64 }

// area draws a line and fills the area between the line and the baseline.
func (s *svg) area(points []point, baseline float64) {
	var d strings.Builder
	for _, p := range points {
		fmt.Fprintf(&d, "L%s %s", num(p.x), num(p.y))
	}
	first, last, top := points[0], points[len(points)-1], d.String()[1:]
	s.printf(`<path class="area" d="M%s %sL%sL%s %sZ"/>`, num(first.x), num(baseline), top, num(last.x), num(baseline))
	s.printf(`<path class="used" d="M%s"/>`, top)
}

// strokes draws a short line upwards from each of these places.
func (s *svg) strokes(places []point, height float64, class string) {
	var d strings.Builder
	for _, p := range places {
		fmt.Fprintf(&d, "M%s %sv-%s", num(p.x), num(p.y), num(height))
	}
	s.printf(`<path class="%s" d="%s"/>`, class, d.String())
}

func (s *svg) circle(middle point, class string) {
	s.printf(`<circle class="%s" cx="%s" cy="%s" r="3.5"/>`, class, num(middle.x), num(middle.y))
}

// num writes a coordinate to a tenth of a pixel.
func num(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a Builder does not fail
	return b.String()
}
