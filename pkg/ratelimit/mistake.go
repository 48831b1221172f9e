package ratelimit

import (
	"strconv"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Mistake is something in a Domain or an authz.Policy that makes no sense. Check returns all mistakes. It does not know
// the source that the value was read from.
type Mistake = suggest.Mistake

// maxMistakes is how many errors, and how many warnings, of one value are returned.
const maxMistakes = 10_000

// Mistakes gathers the mistakes of one value. The zero value has none.
type Mistakes struct {
	list             []Mistake
	errors, warnings int
}

// All returns the mistakes in the order in which they were added.
func (m *Mistakes) All() []Mistake { return m.list }

// At is the value at a path. also are the paths of other values that a mistake there follows from.
func (m *Mistakes) At(path string, also ...string) Spot {
	return Spot{m, Mistake{Path: path, Also: also}}
}

// Key is the key at a path. also is as for At.
func (m *Mistakes) Key(path string, also ...string) Spot {
	return Spot{m, Mistake{Path: path, OnKey: true, Also: also}}
}

// Spot is where a mistake is.
type Spot struct {
	to      *Mistakes
	mistake Mistake
}

// Lacking says that the mistake is what the object lacks.
func (s Spot) Lacking() Spot {
	s.mistake.Lacks = true
	return s
}

// Fail adds a mistake because of which the value cannot be used.
func (s Spot) Fail(message string, hints ...string) {
	s.to.errors++
	s.add(s.to.errors, message, hints)
}

// Warn adds a mistake with which the value can be used.
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

// Element is the path of an element of a list.
func Element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
