package ratelimit

import (
	"strconv"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Mistake is a mistake in a Domain or an authz.Policy. It does not depend on the source of the value.
type Mistake = suggest.Mistake

// maxMistakes bounds the errors, and also the warnings, of one value.
const maxMistakes = 10_000

// Mistakes collects the mistakes of one value. The zero value has none.
type Mistakes struct {
	list             []Mistake
	errors, warnings int
}

// All returns the mistakes in the order in which they were added.
func (m *Mistakes) All() []Mistake { return m.list }

// At returns the value at a path. also are the paths of other values that cause a mistake there.
func (m *Mistakes) At(path string, also ...string) Spot {
	return Spot{m, Mistake{Path: path, Also: also}}
}

// Key returns the key at a path. also is as for At.
func (m *Mistakes) Key(path string, also ...string) Spot {
	return Spot{m, Mistake{Path: path, OnKey: true, Also: also}}
}

// Spot is the place of a mistake.
type Spot struct {
	to      *Mistakes
	mistake Mistake
}

// Lacking marks the mistake as something that the object lacks.
func (s Spot) Lacking() Spot {
	s.mistake.Lacks = true
	return s
}

// Fail adds an error: the value cannot be used.
func (s Spot) Fail(message string, hints ...string) {
	s.to.errors++
	s.add(s.to.errors, message, hints)
}

// Warn adds a warning: the value can be used.
func (s Spot) Warn(message string, hints ...string) {
	s.mistake.Warning = true
	s.to.warnings++
	s.add(s.to.warnings, message, hints)
}

func (s Spot) add(count int, message string, hints []string) {
	if count <= maxMistakes {
		s.mistake.Message, s.mistake.Hints = message, hints
		s.to.list = append(s.to.list, s.mistake)
	}
}

// Element returns the path of an element of a list.
func Element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
