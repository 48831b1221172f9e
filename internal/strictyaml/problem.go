package strictyaml

import (
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a problem keeps the content of a file from being used.
type Severity uint8

// The severities. What a file with warnings says is used, what one with errors says is not.
const (
	Error Severity = iota + 1
	Warning
)

// String returns the word that stands in front of a message.
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Problem is one mistake in a file, or with reading it.
type Problem struct {
	// File is the name of the file, or of the directory when that is at fault.
	File string
	// Line and Column count from 1, in characters; both are 0 when the file as a whole is meant.
	Line, Column int
	// Length is how many characters from Column on are meant.
	Length   int
	Severity Severity
	// Message says what is wrong, in one line.
	Message string
	// Hints say what was expected and how to put it right, one line each.
	Hints []string
	// Source is the line of the file, without its line break; empty when the file as a whole is meant.
	Source string
}

// String returns the problem as people read it: position and message, the line with the place marked, and the hints.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	fmt.Fprintf(&b, ": %s: %s\n", p.Severity, p.Message)
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
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Severity == Error })
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
	b.WriteString(ps.summary())
	return b.String()
}

// summary counts the problems: "2 errors, 1 warning".
func (ps Problems) summary() string {
	errors := 0
	for _, p := range ps {
		if p.Severity == Error {
			errors++
		}
	}
	return counted(errors, "error") + ", " + counted(len(ps)-errors, "warning")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
