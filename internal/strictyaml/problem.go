package strictyaml

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Problem is one mistake in a file, or a failure to read it. In JSON it has the keys of `extauthz check -o json`.
type Problem struct {
	// ID names the kind of the problem, "" for a mistake in a file of this project.
	ID string `json:"id,omitempty"`
	// File is the name of the file or directory.
	File string `json:"file"`
	// Line and Column count from 1, in characters. Both are 0 for a problem of the whole file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Length is how many characters from Column on are wrong.
	Length int `json:"length,omitempty"`
	// Warning means that the file can still be used. A file with an error is not used.
	Warning Warning `json:"severity"`
	// Message describes the mistake in one line.
	Message string `json:"message"`
	// Hints describe what was expected and the fix, one line each.
	Hints []string `json:"hints,omitempty"`
	// Source is the line of the file without its line break, empty for a problem of the whole file.
	Source string `json:"-"`
}

// Warning is the severity of a problem: the word "warning", or "error" if it is false.
type Warning bool

func (w Warning) String() string {
	if w {
		return "warning"
	}
	return "error"
}

// MarshalText returns the word.
func (w Warning) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads the word.
func (w *Warning) UnmarshalText(word []byte) error { *w = string(word) == "warning"; return nil }

// String returns the problem as a text: position and message, the line with the place marked, and the hints.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.head() + "\n")
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

// OneLine returns the problem as one line: position, message and hints.
func (p Problem) OneLine() string { return strings.Join(append([]string{p.head()}, p.Hints...), "; ") }

func (p Problem) head() string {
	at := p.File
	if p.Line > 0 {
		at += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	at += ": " + p.Warning.String() + ": " + p.Message
	if p.ID != "" {
		at += " [" + p.ID + "]"
	}
	return at
}

// Problems are the problems of a set of files. As an error, they are one text.
type Problems []Problem

// Errors returns the problems that are errors.
func (ps Problems) Errors() Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return bool(p.Warning) })
}

// HasErrors reports whether one of the problems is an error.
func (ps Problems) HasErrors() bool { return len(ps.Errors()) > 0 }

// Err returns the problems as an error, nil if all are warnings.
func (ps Problems) Err() error {
	if !ps.HasErrors() {
		return nil
	}
	return ps
}

// maxShown limits the text of a file with many mistakes to a few screens.
const maxShown = 50

// Error returns the texts of the problems, and at the end their number.
func (ps Problems) Error() string {
	var b strings.Builder
	for _, p := range ps[:min(len(ps), maxShown)] {
		b.WriteString(p.String())
		b.WriteByte('\n')
	}
	if len(ps) > maxShown {
		fmt.Fprintf(&b, "… and %d more\n", len(ps)-maxShown)
	}
	errors := len(ps.Errors())
	return b.String() + suggest.Counted(errors, "error") + ", " + suggest.Counted(len(ps)-errors, "warning")
}
