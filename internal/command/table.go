package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// leastText is how many columns of a terminal the last column of a table needs beside the others.
const leastText = 30

// PrintTable prints rows as a table. On a terminal of a width above 0, the texts of the last column are wrapped between
// words. If the terminal is too narrow for that, they follow below the other cells.
func PrintTable(w io.Writer, width int, rows [][]string) error {
	var widths []int
	longest := 0
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
		longest = max(longest, utf8.RuneCountInString(row[len(row)-1]))
	}
	indent := 0
	for _, n := range widths {
		indent += n + len("  ")
	}
	below := width > 0 && indent+min(longest, leastText) > width
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		last := row[len(row)-1]
		for i, cell := range row[:len(row)-1] {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		if below {
			const step = 4
			wrap(&b, strings.Join(strings.Fields(line.String()), " "), width, step)
			b.WriteString(strings.Repeat(" ", step))
			wrap(&b, last, width-step, step)
			continue
		}
		b.WriteString(line.String())
		wrap(&b, last, width-indent, indent)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes a text and a line break. If width is above 0, lines break between words where they would be longer; the
// next lines are indented.
func wrap(b *strings.Builder, text string, width, indent int) {
	if width <= 0 {
		b.WriteString(text + "\n")
		return
	}
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
}
