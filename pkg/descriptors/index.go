package descriptors

import "strings"

// index finds the wildcards that match a value without trying all of them. Each wildcard is under one of its parts, the
// texts between the stars. The parts of one place and one length are in one map. So a search takes one lookup for each
// length, and for parts in the middle one for each length and place in the value, however many wildcards there are.
type index[T any] struct{ groups []group[T] }

// group has the wildcards by their parts of one length at one place.
type group[T any] struct {
	place   partPlace
	length  int
	byParts map[string][]*wildcard[T]
}

// partPlace is where a value has a part of a wildcard that matches it.
type partPlace uint8

const (
	atBeginning partPlace = iota
	atEnd
	inMiddle // only of a wildcard with one part between two stars
)

// crowded is how many wildcards can be under one part before the middle is used, which takes more lookups.
const crowded = 32

// add adds a wildcard under its beginning or its end: under the one with fewer wildcards, of equals the longer. If that
// one is crowded, as in many wildcards such as `*word*`, it is under its middle.
func (x *index[T]) add(w *wildcard[T]) {
	place, part := atBeginning, w.parts[0]
	if last := w.parts[len(w.parts)-1]; w.starred() {
		first, end := len(x.under(atBeginning, part)), len(x.under(atEnd, last))
		if end < first || end == first && len(last) > len(part) {
			place, part = atEnd, last
		}
	}
	if len(w.parts) == 3 && w.parts[1] != "" && len(x.under(place, part)) >= crowded {
		if middle := w.parts[1]; len(x.under(inMiddle, middle)) < crowded {
			place, part = inMiddle, middle
		}
	}
	g := x.group(place, len(part))
	if g == nil {
		x.groups = append(x.groups, group[T]{place, len(part), make(map[string][]*wildcard[T])})
		g = &x.groups[len(x.groups)-1]
	}
	g.byParts[part] = append(g.byParts[part], w)
}

// under returns the wildcards under a part.
func (x *index[T]) under(place partPlace, part string) []*wildcard[T] {
	if g := x.group(place, len(part)); g != nil {
		return g.byParts[part]
	}
	return nil
}

// group returns the group of parts of a length at a place, nil if there is none.
func (x *index[T]) group(place partPlace, length int) *group[T] {
	for i := range x.groups {
		if g := &x.groups[i]; g.place == place && g.length == length {
			return g
		}
	}
	return nil
}

// find returns the wildcard that wins among the matching ones and a winner so far, which can be nil.
func (x *index[T]) find(value string, winner *wildcard[T]) *wildcard[T] {
	for i := range x.groups {
		g := &x.groups[i]
		last := len(value) - g.length // the last place of a part of this length
		switch {
		case last < 0:
		case g.place == atBeginning:
			winner = best(g.byParts[value[:g.length]], value, winner)
		case g.place == atEnd:
			winner = best(g.byParts[value[last:]], value, winner)
		default:
			for at := range last + 1 {
				for _, w := range g.byParts[value[at:at+g.length]] {
					if w.beats(winner) && w.matchAround(value, at) {
						winner = w
					}
				}
			}
		}
	}
	return winner
}

func best[T any](list []*wildcard[T], value string, winner *wildcard[T]) *wildcard[T] {
	for _, w := range list {
		if w.beats(winner) && w.match(value) {
			winner = w
		}
	}
	return winner
}

// beats reports whether the wildcard wins against another one that matches. nil is none.
func (w *wildcard[T]) beats(other *wildcard[T]) bool { return other == nil || w.rank < other.rank }

// matchAround reports whether a value matches that has the middle part at this place. It looks only at the beginning
// and the end: the value of an attacker can have the part at thousands of places.
func (w *wildcard[T]) matchAround(value string, at int) bool {
	first, middle, last := w.parts[0], w.parts[1], w.parts[2]
	return at >= len(first) && at+len(middle) <= len(value)-len(last) &&
		strings.HasPrefix(value, first) && strings.HasSuffix(value, last)
}
