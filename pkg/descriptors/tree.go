package descriptors

import (
	"slices"
	"strings"
)

// Pattern matches one level of a rule. `*` stands for any number of characters. An empty Value matches any value.
type Pattern struct{ Key, Value string }

// Wildcard reports whether the pattern has a `*`.
func (p Pattern) Wildcard() bool {
	return strings.Contains(p.Key, "*") || strings.Contains(p.Value, "*")
}

// WildcardOrder selects the wildcard that wins if several match an entry.
type WildcardOrder uint8

const (
	// MostSpecific selects the wildcard with the most literal characters; of equals, the one added first.
	MostSpecific WildcardOrder = iota
	// FileOrder selects the wildcard added first, as envoyproxy/ratelimit does. An entry that repeats the text of a
	// pattern matches that pattern before all others.
	FileOrder
)

// Tree finds the value of a path of patterns. The zero value is empty. One goroutine builds it; then it is only read.
type Tree[T any] struct {
	// Value is the value of this node.
	Value T

	exact     map[Entry]*Tree[T]
	wildcards []wildcard[T] // the winner first
	keys      map[string]*Tree[T]
}

type wildcard[T any] struct {
	key, value glob
	anyValue   bool
	node       *Tree[T]
}

// Add returns the child with this pattern and creates it if needed.
func (t *Tree[T]) Add(p Pattern, order WildcardOrder) *Tree[T] {
	switch {
	case p.Wildcard():
		node := t.addWildcard(p, order)
		if order == FileOrder && p.Value != "" {
			if t.exact == nil {
				t.exact = make(map[Entry]*Tree[T])
			}
			t.exact[Entry(p)] = node
		}
		return node
	case p.Value == "":
		return child(&t.keys, p.Key)
	}
	return child(&t.exact, Entry(p))
}

func child[K comparable, T any](children *map[K]*Tree[T], key K) *Tree[T] {
	if node := (*children)[key]; node != nil {
		return node
	}
	if *children == nil {
		*children = make(map[K]*Tree[T])
	}
	node := new(Tree[T])
	(*children)[key] = node
	return node
}

func (t *Tree[T]) addWildcard(p Pattern, order WildcardOrder) *Tree[T] {
	w := wildcard[T]{key: newGlob(p.Key), value: newGlob(p.Value), anyValue: p.Value == "", node: new(Tree[T])}
	place := len(t.wildcards)
	for i, other := range t.wildcards {
		if other.key.pattern == p.Key && other.value.pattern == p.Value {
			return other.node
		}
		if order == MostSpecific && place == len(t.wildcards) && w.literals() > other.literals() {
			place = i
		}
	}
	t.wildcards = slices.Insert(t.wildcards, place, w)
	return w.node
}

func (w wildcard[T]) literals() int { return w.key.literals + w.value.literals }

// Find returns the node at which a walk of the entries ends, or nil if a level has no match.
func (t *Tree[T]) Find(entries []Entry) *Tree[T] {
	node, matched := t.Walk(entries)
	if matched < len(entries) {
		return nil
	}
	return node
}

// Walk walks the tree, one level for each entry. At each level it takes the child with exactly this key and value, else
// the winning wildcard, else the child with only the key. It never goes back to another child. It returns the last node
// and the number of entries that matched.
func (t *Tree[T]) Walk(entries []Entry) (last *Tree[T], matched int) {
	for i, e := range entries {
		next := t.step(e)
		if next == nil {
			return t, i
		}
		t = next
	}
	return t, len(entries)
}

func (t *Tree[T]) step(e Entry) *Tree[T] {
	if node := t.exact[e]; node != nil {
		return node
	}
	for i := range t.wildcards {
		w := &t.wildcards[i]
		if w.key.match(e.Key) && (w.anyValue || w.value.match(e.Value)) {
			return w.node
		}
	}
	return t.keys[e.Key]
}

// glob is a pattern in which `*` stands for any number of characters.
type glob struct {
	pattern  string
	parts    []string // between the stars
	literals int
}

func newGlob(pattern string) glob {
	g := glob{pattern: pattern, parts: strings.Split(pattern, "*")}
	for _, part := range g.parts {
		g.literals += len(part)
	}
	return g
}

// match takes time linear in s for each part. The leftmost place of a part leaves the most room for later parts.
func (g glob) match(s string) bool {
	first, last := g.parts[0], g.parts[len(g.parts)-1]
	if len(g.parts) == 1 {
		return s == first
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range g.parts[1 : len(g.parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// Match reports whether s matches a pattern in which `*` stands for any number of characters.
func Match(pattern, s string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == s
	}
	return newGlob(pattern).match(s)
}
