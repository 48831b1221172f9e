package strictyaml_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

const mistaken = `name: corner
desk: {staff: 3, bell: }
shelves:
  - label: a
    lock: {digit: 5, kye: small}
    labels: {a.b: c, a: d}
    tags: [x, [y]]
  - label: [b]
    colour: pink
    count:
    locks:
      - key: k
      - broken
    shelves: [{label: c}, none]
  - shelf
  - label: &word d
    notes: {deep: {er: [1, *word]}}
`

// A mistake is shown at the value of its path, at its key, or at the key of what lacks it.
func TestMistakesArePlaced(t *testing.T) {
	for _, c := range []struct{ path, at, key string }{
		{"", "1:1", "1:1"},
		{"name", "1:7", "1:1"},
		{"end", "1:1", "1:1"},
		{"desk.staff", "2:15", "2:8"},
		{"desk.bell", "2:18", "2:18"},
		{"desk.bell.tone", "2:18", "2:18"},
		{"desk.absent.below", "2:1", "2:1"},
		{"shelves[1].locks[0]", "12:9", "12:9"},
		{"shelves[0]", "4:5", "4:5"},
		{"shelves[0].count", "4:5", "4:5"},
		{"shelves[0].lock.digit", "5:19", "5:12"},
		{"shelves[0].labels.a.b", "6:19", "6:14"},
		{"shelves[0].labels.a", "6:25", "6:22"},
		{"shelves[0].tags[0]", "7:12", "7:12"},
		{"shelves[1].count", "10:5", "10:5"},
		{"shelves[1].locks[0].key", "12:14", "12:9"},
		{"shelves[1].locks[0].digit", "12:9", "12:9"},
		{"shelves[1].shelves[0].label", "14:23", "14:16"},
		{"shelves[3].notes.deep.er[1]", "16:12", "16:12"},
		{"shelves[9].label", "3:1", "3:1"},
		{"shelves.label", "3:1", "3:1"},
		{"shelves[x]", "3:1", "3:1"},
		{"shelves[0", "4:5", "4:5"},
	} {
		for _, onKey := range []bool{false, true} {
			_, doc := decode(mistaken)
			doc.Add("", suggest.Mistake{Path: c.path, OnKey: onKey, Message: "MISTAKE"})
			want := c.at
			if onKey {
				want = c.key
			}
			if got := placeOf(doc); got != want {
				t.Errorf("%q, on its key: %v: at %q, want %s", c.path, onKey, got, want)
			}
		}
	}
}

func placeOf(doc *strictyaml.Document) string {
	for _, p := range doc.Problems() {
		if p.Message == "MISTAKE" {
			return fmt.Sprintf("%d:%d", p.Line, p.Column)
		}
	}
	return ""
}

// What follows from a mistake that was reported is not a second one.
func TestFollowingMistakesAreDropped(t *testing.T) {
	for _, c := range []struct {
		name    string
		mistake suggest.Mistake
		dropped bool
	}{
		{"of a value that could not be read", suggest.Mistake{Path: "shelves[1].label"}, true},
		{"beside one", suggest.Mistake{Path: "shelves[1].locks[0].key"}, false},
		{"of a word that could not be read", suggest.Mistake{Path: "shelves[1].colour"}, true},
		{"of its key", suggest.Mistake{Path: "shelves[1].colour", OnKey: true}, false},
		{"of a key in it", suggest.Mistake{Path: "shelves[2].label", OnKey: true}, true},
		{"of what a map with an unknown key needs",
			suggest.Mistake{Path: "shelves[0].lock.light", OnKey: true, Lacks: true}, true},
		{"of a key that is there", suggest.Mistake{Path: "shelves[1].colour", OnKey: true, Lacks: true}, true},
		{"of what another map needs", suggest.Mistake{Path: "shelves[1].wait", OnKey: true, Lacks: true}, false},
		{"of the map around it", suggest.Mistake{Path: "shelves[1]"}, false},
		{"of an element that could not be read", suggest.Mistake{Path: "shelves[2]"}, true},
		{"below it", suggest.Mistake{Path: "shelves[2].label"}, true},
		{"of what a value follows from",
			suggest.Mistake{Path: "shelves[1].locks[0].key", Also: []string{"shelves[1].colour"}}, true},
		{"of what it could be read from",
			suggest.Mistake{Path: "shelves[1].locks[0].key", Also: []string{"name", "end"}}, false},
		{"of a list of maps with such an element", suggest.Mistake{Path: "shelves"}, false},
		{"of a list of texts with an element that could not be read", suggest.Mistake{Path: "shelves[0].tags"},
			true},
		{"of what an unknown key may stand for", suggest.Mistake{Path: "shelves[0].lock.key"}, true},
		{"of what follows from that",
			suggest.Mistake{Path: "shelves[0].label", Also: []string{"shelves[0].lock.key"}}, true},
		{"of what such a key does not stand for", suggest.Mistake{Path: "shelves[0].lock.light"}, false},
		{"of what it has", suggest.Mistake{Path: "shelves[0].lock.digit"}, false},
		{"of that map as a whole", suggest.Mistake{Path: "shelves[0].lock"}, false},
		{"that it has none of several keys", suggest.Mistake{Path: "shelves[0].lock", Lacks: true}, true},
		{"that another map has none of them", suggest.Mistake{Path: "shelves[1]", Lacks: true}, false},
		{"of what another map lacks", suggest.Mistake{Path: "shelves[1].wait"}, false},
	} {
		for _, prefix := range []string{"", "shelves"} {
			_, doc := decode(mistaken)
			m := c.mistake
			m.Message = "MISTAKE"
			if prefix != "" {
				if !strings.HasPrefix(m.Path, prefix) || m.Also != nil {
					continue
				}
				m.Path = strings.TrimPrefix(m.Path, prefix)
			}
			doc.Add(prefix, m)
			if dropped := placeOf(doc) == ""; dropped != c.dropped {
				t.Errorf("%s (path %q in %q): dropped: %v, want %v", c.name, m.Path, prefix, dropped, c.dropped)
			}
		}
	}
}

// Nothing is said about a file of which nothing could be read.
func TestMistakesOfAnUnreadFile(t *testing.T) {
	for _, text := range []string{"", "- a", "name: 'x"} {
		_, doc := decode(text)
		doc.Add("", suggest.Mistake{Path: "name", Message: "MISTAKE"})
		if placeOf(doc) != "" || doc.Sound("") {
			t.Errorf("%q: got a mistake:\n%s", text, doc.Problems())
		}
	}
}

func TestAMistakeIsShownOnce(t *testing.T) {
	_, doc := decode("shelves: [{lock: &l {key: a}}, {lock: *l}]")
	for _, path := range []string{"[0].lock.key", "[1].lock.key", "[1].lock.key"} {
		doc.Add("shelves", suggest.Mistake{Path: path, Message: "MISTAKE", Hints: []string{"", "fix it"}})
	}
	want := `f:1:27: error: MISTAKE
    1 | shelves: [{lock: &l {key: a}}, {lock: *l}]
      |                           ^
      = fix it

1 error, 0 warnings`
	if got := doc.Problems().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPositionOfAPath(t *testing.T) {
	_, doc := decode(mistaken)
	for path, want := range map[string]string{"desk": "f:2", "shelves[1].locks[0]": "f:12", "shelves[0].wait": "f:4"} {
		if got := doc.Position(path); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
}
