package strictyaml

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Problem is one mistake in a file, or with reading it.
type Problem struct {
	// File is the name of the file, or of the directory when that is at fault.
	File string
	// Line and Column count from 1, in characters; both are 0 when the file as a whole is meant.
	Line, Column int
	// Length is how many characters from Column on are meant.
	Length int
	// Warning says that what the file says is used all the same; a file with another problem is not used.
	Warning bool
	// Message says what is wrong, in one line.
	Message string
	// Hints say what was expected and how to put it right, one line each.
	Hints []string
	// Source is the line of the file, without its line break; empty when the file as a whole is meant.
	Source string
}

// Severity returns the word that stands in front of the message.
func (p Problem) Severity() string {
	if p.Warning {
		return "warning"
	}
	return "error"
}

// String returns the problem as people read it: position and message, the line with the place marked, and the hints.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	fmt.Fprintf(&b, ": %s: %s\n", p.Severity(), p.Message)
	if p.Line > 0 {
		text, marks := excerpt(p.Source, p.Column, p.Length)
		fmt.Fprintf(&b, "%5d | %s\n", p.Line, text)
		fmt.Fprintf(&b, "      | %s\n", marks)
	}
	for _, hint := range p.Hints {
		fmt.Fprintf(&b, "      = %s\n", hint)
	}
	return b.String()
}

// Problems are the problems of a set of files. As an error it is all of them in one text.
type Problems []Problem

// HasErrors reports whether one of the problems is an error.
func (ps Problems) HasErrors() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// Err returns the problems as an error, nil when they are warnings at most.
func (ps Problems) Err() error {
	if !ps.HasErrors() {
		return nil
	}
	return ps
}

// maxShown keeps the text of a file that is wrong all over to a few screens.
const maxShown = 50

// Error returns the problems as people read them, one after the other, and at the end how many there are.
func (ps Problems) Error() string {
	var b strings.Builder
	for _, p := range ps[:min(len(ps), maxShown)] {
		b.WriteString(p.String())
		b.WriteByte('\n')
	}
	if len(ps) > maxShown {
		fmt.Fprintf(&b, "… and %d more\n", len(ps)-maxShown)
	}
	errors := 0
	for _, p := range ps {
		if !p.Warning {
			errors++
		}
	}
	return b.String() + suggest.Counted(errors, "error") + ", " + suggest.Counted(len(ps)-errors, "warning")
}
