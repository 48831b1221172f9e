package descriptors

import "strings"

// glob is a pattern in which `*` stands for any number of characters.
type glob struct {
	parts    []string // the texts between the stars; one without a star
	literals int      // characters that are not stars
}

func newGlob(pattern string) glob {
	g := glob{parts: strings.Split(pattern, "*")}
	for _, part := range g.parts {
		g.literals += len(part)
	}
	return g
}

// starred reports whether the pattern has a star.
func (g glob) starred() bool { return len(g.parts) > 1 }

// match takes time linear in s for each part. The leftmost place of a part leaves the most room for later parts.
func (g glob) match(s string) bool {
	first, last := g.parts[0], g.parts[len(g.parts)-1]
	if !g.starred() {
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
