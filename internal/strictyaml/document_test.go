package strictyaml_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// unsound is a file with values that cannot be read and with unknown keys.
const unsound = `name: corner
desk: {staff: 3, bell: }
shelves:
  - label: a
    lock: {digit: 5, k: small}
    notes: {a.b: c, a: d}
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

// A mistake is shown at the value of its path, at its key, or at the key of the map that lacks it.
func TestPlacesOfMistakes(t *testing.T) {
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
		{"shelves[0].notes.a.b", "6:18", "6:13"},
		{"shelves[0].notes.a", "6:24", "6:21"},
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
			_, doc := decode(unsound)
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

// A mistake that follows from a reported one is dropped.
func TestFollowingMistakesAreDropped(t *testing.T) {
	for _, c := range []struct {
		name    string
		mistake suggest.Mistake
		dropped bool
	}{
		{"of an unread value", suggest.Mistake{Path: "shelves[1].label"}, true},
		{"beside an unread value", suggest.Mistake{Path: "shelves[1].locks[0].key"}, false},
		{"of an unread word", suggest.Mistake{Path: "shelves[1].colour"}, true},
		{"of the key of an unread word", suggest.Mistake{Path: "shelves[1].colour", OnKey: true}, false},
		{"of a key inside an unread value", suggest.Mistake{Path: "shelves[2].label", OnKey: true}, true},
		{"of a key that a map with an unknown key lacks",
			suggest.Mistake{Path: "shelves[0].lock.light", OnKey: true, Lacks: true}, true},
		{"that the map lacks the key of an unread word",
			suggest.Mistake{Path: "shelves[1].colour", OnKey: true, Lacks: true}, true},
		{"of a key that a map without unknown keys lacks",
			suggest.Mistake{Path: "shelves[1].wait", OnKey: true, Lacks: true}, false},
		{"of the map around an unread value", suggest.Mistake{Path: "shelves[1]"}, false},
		{"of an unread element", suggest.Mistake{Path: "shelves[2]"}, true},
		{"below an unread element", suggest.Mistake{Path: "shelves[2].label"}, true},
		{"that follows from an unread value",
			suggest.Mistake{Path: "shelves[1].locks[0].key", Also: []string{"shelves[1].colour"}}, true},
		{"that follows from values that were read",
			suggest.Mistake{Path: "shelves[1].locks[0].key", Also: []string{"name", "end"}}, false},
		{"of a list of maps with an unread element", suggest.Mistake{Path: "shelves"}, false},
		{"of a list of texts with an unread element", suggest.Mistake{Path: "shelves[0].tags"},
			true},
		{"of the key that an unknown key may stand for", suggest.Mistake{Path: "shelves[0].lock.key"}, true},
		{"that follows from the key that an unknown key may stand for",
			suggest.Mistake{Path: "shelves[0].label", Also: []string{"shelves[0].lock.key"}}, true},
		{"of another absent key of a map with an unknown key", suggest.Mistake{Path: "shelves[0].lock.light"}, false},
		{"of a key that such a map has", suggest.Mistake{Path: "shelves[0].lock.digit"}, false},
		{"of a map with an unknown key as a whole", suggest.Mistake{Path: "shelves[0].lock"}, false},
		{"that a map with an unknown key has none of several keys",
			suggest.Mistake{Path: "shelves[0].lock", Lacks: true}, true},
		{"that a map without unknown keys has none of several keys", suggest.Mistake{Path: "shelves[1]", Lacks: true}, false},
		{"of an absent key of a map without unknown keys", suggest.Mistake{Path: "shelves[1].wait"}, false},
	} {
		for _, prefix := range []string{"", "shelves"} {
			_, doc := decode(unsound)
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
				t.Errorf("a mistake %s (path %q in %q): dropped: %v, want %v", c.name, m.Path, prefix, dropped, c.dropped)
			}
		}
	}
}

// A file that could not be read has no further mistakes.
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
	_, doc := decode(unsound)
	for path, want := range map[string]string{"desk": "f:2", "shelves[1].locks[0]": "f:12", "shelves[0].wait": "f:4"} {
		if got := doc.Position(path); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
}

// A file of a Kind with List is a list, and no map.
func TestReadList(t *testing.T) {
	kind := shopKind()
	kind.List = true
	read := func(text string) *strictyaml.Document {
		return strictyaml.Read(strictyaml.File{Name: "list", Content: []byte(text)}, kind)
	}
	doc := read("- a: 1\n- b\n- []\n- ~\n")
	var shapes []string
	for _, v := range doc.Root().Items() {
		shapes = append(shapes, fmt.Sprintf("%s %t %t %t %t", doc.At(v), v.IsMap(), v.IsText(), v.IsList(),
			v.IsAbsent()))
	}
	const want = "list:1 true false false false; list:2 false true false false; list:3 false false true false; " +
		"list:4 false false false true"
	if got := strings.Join(shapes, "; "); got != want || doc.Problems() != nil {
		t.Errorf("got %s, want %s\n%v", got, want, doc.Problems())
	}
	doc.Warn(doc.Root().Items()[1], "too short")
	if p := doc.Problems(); len(p) != 1 || p.HasErrors() || p[0].Line != 2 || p[0].Message != "too short" {
		t.Errorf("a warning: %v", p)
	}
	if doc := read("a: 1\n"); doc.Root() != nil || !strings.Contains(doc.Problems().Error(), "is a list, not a map") {
		t.Errorf("a map: %v", doc.Problems())
	}
}
