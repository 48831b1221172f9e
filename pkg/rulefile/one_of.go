package rulefile

import "fmt"

// choice is a key of which a map has one and no other.
type choice struct {
	name string
	// there says that the file has the key, at the place.
	there bool
	at    place
}

// chosen makes a choice of what a file says under a key.
func chosen[V any](name string, g given[V]) choice {
	return choice{name: name, there: g.mentioned, at: g.key}
}

// exactlyOne reports a map, at a place, that has none of the choices, or more than one; otherwise it returns true. what is the
// map in messages.
func (b builder) exactlyOne(what string, at place, choices ...choice) bool {
	count := b.atMostOne(choices...)
	if count == 0 && !b.strange[at] {
		names := make([]string, len(choices))
		for i, c := range choices {
			names[i] = c.name
		}
		b.fail(at, fmt.Sprintf("%s without %s", what, oneOf(names)), "add one of them")
	}
	return count == 1
}

// atMostOne reports a second choice, and returns how many there are.
func (b builder) atMostOne(choices ...choice) int {
	count, first := 0, ""
	for _, c := range choices {
		switch {
		case !c.there:
		case count == 0:
			count, first = 1, c.name
		default:
			count++
			b.fail(c.at, quoted(c.name)+" beside "+quoted(first), "keep one of them")
		}
	}
	return count
}
