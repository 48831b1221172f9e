package strictyaml

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/extauthz/extauthz/internal/suggest"
)

// unknownKey reports a key that a section does not have: it belongs elsewhere, is misspelt, or is not known at all.
func (d *decoder) unknownKey(in *section, f field) {
	message := fmt.Sprintf("unknown key %s %s", suggest.Quoted(f.key), in.Where)
	word := suggest.Closest(f.key, in.keys)
	home := d.homeOf(f.key, in)
	switch {
	case in.Remarks[f.key] != "":
		d.fail(f.at, message, in.Remarks[f.key])
		return
	case word != "" && (home == nil || suggest.Distance(f.key, word) == 1):
		d.fail(f.at, message, "did you mean `"+word+"`?")
		return
	case home != nil:
		d.fail(f.at, fmt.Sprintf("%s does not belong %s", suggest.Quoted(f.key), in.Where), home.Belongs)
		return
	}
	for _, other := range d.allSections() {
		if word := suggest.Closest(f.key, other.keys); word != "" {
			d.fail(f.at, message, "did you mean `"+word+"`?", other.Belongs)
			return
		}
	}
	d.fail(f.at, message, "the keys here are "+quotedList(in.keys))
}

// homeOf returns the section that a key belongs in if that is not the one it stands in, nil for none. One of the
// same part of the file comes first.
func (d *decoder) homeOf(key string, in *section) *section {
	var home *section
	for _, other := range d.allSections() {
		switch {
		case other.Name == in.Name || !slices.Contains(other.keys, key):
		case other.part == in.part:
			return other
		case home == nil:
			home = other
		}
	}
	return home
}

// allSections returns the sections of the file: those of the rows of its kind first, in their order, then the
// others from the top of the file on.
func (d *decoder) allSections() []*section {
	if d.sections != nil {
		return d.sections
	}
	named := map[string]bool{}
	var walk func(s *section)
	walk = func(s *section) {
		if named[s.Name] {
			return
		}
		named[s.Name] = true
		d.sections = append(d.sections, s)
		for _, k := range d.planOf(s.Type).keys {
			if k.object != nil {
				walk(d.sectionOf(k, s))
			}
		}
	}
	walk(d.root)
	slices.SortStableFunc(d.sections, func(a, b *section) int { return cmp.Compare(a.rank, b.rank) })
	return d.sections
}
