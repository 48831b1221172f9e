package descriptors

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestFindTriesAll compares Find with a model that tries all patterns one after the other, on many patterns of few
// characters, so that most values match several of them.
func TestFindTriesAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(letters string, most int) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	for round := range 500 {
		order := WildcardOrder(round % 2)
		var tree Tree[int]
		var patterns []Pattern
		for range 1 + r.IntN(200) {
			p := Pattern{Key: "k", Value: text("ab*", 7)}
			if r.IntN(10) == 0 {
				p.Key = text("k*", 2)
			}
			if node := tree.Add(p, order); node.Value == 0 {
				patterns = append(patterns, p)
				node.Value = len(patterns)
			}
		}
		for range 60 {
			e := Entry{Key: "k", Value: text("ab*", 10)}
			got := 0
			if node := tree.Find([]Entry{e}); node != nil {
				got = node.Value
			}
			if want := tryAll(patterns, e, order); got != want {
				t.Fatalf("order %d, patterns %q: %q ends at %d, want %d", order, patterns, e, got, want)
			}
		}
	}
}

// tryAll returns the number of the pattern that wins for an entry, counted from 1, and 0 for none.
func tryAll(patterns []Pattern, e Entry, order WildcardOrder) int {
	winner, most := 0, -1
	for i, p := range patterns {
		switch {
		case Entry(p) == e && p.Value != "" && (order == FileOrder || !p.Wildcard()):
			return i + 1
		case !Match(p.Key, e.Key) || p.Value != "" && !Match(p.Value, e.Value):
			continue
		}
		literals := len(p.Key+p.Value) - strings.Count(p.Key+p.Value, "*")
		if !p.Wildcard() {
			literals = -1 // only a key: less than all wildcards
		}
		if winner == 0 || order == MostSpecific && literals > most || most < 0 {
			winner, most = i+1, literals
		}
	}
	return winner
}

// TestFewAreTried files 10,000 wildcards of each shape. A search looks up few parts and tries few wildcards for each.
func TestFewAreTried(t *testing.T) {
	for _, shape := range shapes {
		var tree Tree[int]
		for i := range 10_000 {
			path, _ := shape.rule(i)
			tree.Add(path[0], MostSpecific)
		}
		if tree.wildcards == nil {
			continue
		}
		groups := tree.wildcards.keys["path"].values.groups
		if len(groups) > 3 {
			t.Errorf("%s: parts of %d lengths are looked up", shape.name, len(groups))
		}
		for _, g := range groups {
			for part, list := range g.byParts {
				if len(list) > crowded {
					t.Errorf("%s: %d wildcards are under %q", shape.name, len(list), part)
				}
			}
		}
	}
}

// TestFindLongValue searches values that repeat the parts of many wildcards thousands of times.
func TestFindLongValue(t *testing.T) {
	var tree Tree[int]
	for i := range 1000 {
		tree.Add(Pattern{"agent", fmt.Sprintf("*ab%03d*", i)}, MostSpecific).Value = i + 1
		tree.Add(Pattern{"agent", fmt.Sprintf("*ab*%03d*", i)}, MostSpecific)
	}
	long := strings.Repeat("ab", 30_000)
	if node := tree.Find([]Entry{{"agent", long}}); node != nil {
		t.Errorf("a value without digits ends at %d", node.Value)
	}
	if node := tree.Find([]Entry{{"agent", long + "ab007" + long}}); node == nil || node.Value != 8 {
		t.Errorf("a value with ab007 ends at %+v", node)
	}
}
