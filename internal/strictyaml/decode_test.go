package strictyaml_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		want       shop
	}{
		{
			name: "a text may look like a number or a bool",
			yaml: "name: 5\nshelves: [{label: true}, {label: yes}, {label: 010}, {label: 1.50}, " +
				"{label: \"é\\t\\x41\"}, {label: ''}]",
			want: shop{Name: "5", Shelves: []shelf{
				{Label: "true"}, {Label: "yes"}, {Label: "010"}, {Label: "1.50"}, {Label: "é\tA"}, {Label: ""},
			}},
		},
		{
			name: "a text",
			yaml: "desk: {bell: {song: do.5}}",
			want: shop{Desk: &desk{Drawn: "f:1", Bell: &bell{Song: &song{[]string{"do", "5"}}}}},
		},
		{
			name: "a list in place of a text",
			yaml: "desk: {bell: {song: [do.re, 5]}}",
			want: shop{Desk: &desk{Drawn: "f:1", Bell: &bell{Song: &song{[]string{"do.re", "5"}}}}},
		},
		{
			name: "every kind of value",
			yaml: `
name: all
end: true
shelves:
  - label: a
    count: 1_000
    weight: 5
    rank: -3
    steps: 7
    colour: GREEN
    open: off
    wait: 1m30s
    tags: [x, 5]
    colours: [red, blue]
    codes: [ABC]
    code: XYZ
    notes: {s: text, q: "5", i: -5, u: 18446744073709551615, f: 1.5, e: 1e3, b: no, n: ~, d: 2026-01-02,
      l: [1, {m: {}}]}
    lock: {key: small}
    locks: [{digit: 0, light: yes}, {}]
    row: 2
    back: true`,
			want: shop{Name: "all", End: true, Shelves: []shelf{{
				Label: "a", Count: 1000, Weight: new(uint32(5)), Rank: -3, Steps: 7,
				Colour: "green", Open: new(false), Wait: 90 * time.Second,
				Tags: []string{"x", "5"}, Colours: []colour{"red", "blue"}, Codes: []code{{"ABC"}}, Code: &code{"XYZ"},
				Notes: map[string]any{
					"s": "text", "q": "5", "i": int64(-5), "u": uint64(math.MaxUint64),
					"f": 1.5, "e": 1000.0, "b": false, "n": nil,
					"d": "2026-01-02", "l": []any{int64(1), map[string]any{"m": map[string]any{}}},
				},
				Lock: &lock{Key: "small"}, Locks: []lock{{Digit: new(0), Light: true}, {}}, Place: Place{Row: 2,
					Back: true},
			}}},
		},
		{
			name: "maps in maps",
			yaml: "shelves: [{label: a, shelves: [{label: b, shelves: []}]}]",
			want: shop{Shelves: []shelf{{Label: "a", Shelves: []shelf{{Label: "b", Shelves: []shelf{}}}}}},
		},
		{
			name: "a key without a value means the same as no key",
			yaml: "name:\nend: ~\nshelves: [{label: ~, count: , weight: , lock: , tags: , notes: , shelves: }]",
			want: shop{Shelves: []shelf{{}}},
		},
		{
			name: "a bare key means the same as an empty map",
			yaml: "desk: {bell: }",
			want: shop{Desk: &desk{Bell: &bell{}}},
		},
		{
			name: "an alias has the value of its anchor",
			yaml: "shelves: [{lock: &l {digit: 5}}, {lock: *l}]",
			want: shop{Shelves: []shelf{{Lock: &lock{Digit: new(5)}}, {Lock: &lock{Digit: new(5)}}}},
		},
		{
			name: "an anchor may be defined again",
			yaml: "shelves: [{label: &a x, tags: [*a]}, {label: &a y, tags: [*a]}]",
			want: shop{Shelves: []shelf{{Label: "x", Tags: []string{"x"}}, {Label: "y", Tags: []string{"y"}}}},
		},
		{
			name: "a merge key adds absent keys, and the first of several wins",
			yaml: "shelves: [{lock: &a {digit: 5, light: yes}}, " +
				"{lock: {<<: *a, digit: 6}}, {lock: {<<: [{digit: 7}, *a]}}]",
			want: shop{Shelves: []shelf{
				{Lock: &lock{Digit: new(5), Light: true}}, {Lock: &lock{Digit: new(6),
					Light: true}}, {Lock: &lock{Digit: new(7), Light: true}},
			}},
		},
		{
			name: "a merge key in quotes is an ordinary key",
			yaml: `shelves: [{notes: {"<<": {b: c}}}]`,
			want: shop{Shelves: []shelf{{Notes: map[string]any{"<<": map[string]any{"b": "c"}}}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := "\ufeff---\r\n" + strings.ReplaceAll(c.yaml, "\n", "\r\n") + "\r\n...\r\n"
			for _, text := range []string{c.yaml, other} {
				got, doc := decode(text)
				if problems := doc.Problems(); len(problems) > 0 {
					t.Fatal(problems)
				}
				positions := cmp.FilterPath(func(p cmp.Path) bool {
					return p.Last().String() == ".Position" || p.Last().String() == ".Drawn"
				}, cmp.Ignore())
				if diff := cmp.Diff(c.want, got, positions, cmp.AllowUnexported(code{}, song{})); diff != "" {
					t.Errorf("%s\nwant (-) and got (+):\n%s", text, diff)
				}
			}
		})
	}
}

func TestPositionsOfMaps(t *testing.T) {
	s, doc := decode("\n# a shop\nname: x\ndesk:\n  bell:\nshelves:\n- # here\n  label: a\n- {label: b}\n")
	if problems := doc.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	got := []string{s.Desk.Drawn, s.Shelves[0].Position, s.Shelves[1].Position}
	if diff := cmp.Diff([]string{"f:4", "f:8", "f:9"}, got); diff != "" {
		t.Error(diff)
	}
}

// An unread element stays in its list, so that paths into the list name the elements of the file.
func TestUnreadElementsStay(t *testing.T) {
	s, _ := decode("shelves: [x, {label: a, colours: [pink, red]}]")
	want := []shelf{{}, {Label: "a", Colours: []colour{"", "red"}}}
	for i := range s.Shelves {
		s.Shelves[i].Position = ""
	}
	if diff := cmp.Diff(want, s.Shelves, cmp.AllowUnexported(code{}, song{})); diff != "" {
		t.Error(diff)
	}
}

// Line breaks of all systems count as one, and a byte order mark does not count as a character.
func TestLineBreaks(t *testing.T) {
	for _, text := range []string{
		"name: x\nend: maybe", "name: x\r\nend: maybe\r\n", "name: x\rend: maybe\r", "\ufeffname: x\nend: maybe",
	} {
		_, doc := decode(text)
		want := "f:2:6: error: `end` is `true` or `false`, not `maybe`\n"
		if got := doc.Problems().Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%q: got\n%swant\n%s", text, got, want)
		}
	}
}

// Nested aliases, deep nesting and large or binary files are errors. They do not exhaust memory or time.
func TestDecodeIsBounded(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("name: d\nshelves:\n- label: a\n  notes:\n    a0: &a0 [x]\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "    a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	var unknown strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&unknown, "zebra%d: 1\n", i)
	}
	for _, c := range []struct{ name, text, want string }{
		{"aliases", bomb.String(), "too many values"},
		{"unknown keys", unknown.String(), "500 errors"},
		{"brackets", "name: d\nshelves: " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "nested too deep"},
		{"open brackets", strings.Repeat("[", 1<<19), "exceeded max depth"},
		{"dashes", strings.Repeat("- ", 1<<18), "exceeded max depth"},
		{"invalid UTF-8", "name: \xff\n", "byte 0xff is not UTF-8"},
		{"a control character", "name: a\x1b[31m\n", "control character U+001B"},
		{"a line break of YAML 1.1", "name: a\u2028b\n", "control character U+2028"},
		{"a byte order mark within", "name: a\ufeffb\n", "control character U+FEFF"},
		{"size", "name: a\n#" + strings.Repeat("x", 1<<20), "larger than 1 MB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, doc := decode(c.text)
			problems := doc.Problems()
			if !strings.Contains(problems.Error(), c.want) || !problems.HasErrors() {
				t.Errorf("got:\n%s\nwant an error with %q", problems, c.want)
			}
			if !reflect.DeepEqual(s, shop{}) {
				t.Errorf("got %+v, want nothing decoded", s)
			}
		})
	}
}

func TestProblemsAreCutShort(t *testing.T) {
	_, doc := decode("shelves:\n" + strings.Repeat("  - colour: x\n", 2000))
	problems := doc.Problems()
	if got := strings.Count(problems.Error(), "\n      = "); len(problems) != 500 || got != 50 {
		t.Errorf("%d problems, %d of them shown: want 500 and 50", len(problems), got)
	}
	if want := "… and 450 more\n500 errors, 0 warnings"; !strings.HasSuffix(problems.Error(), want) {
		t.Errorf("the text ends in %q, want %q", problems.Error()[len(problems.Error())-60:], want)
	}
}

func TestErrIsNilForWarnings(t *testing.T) {
	_, doc := decode("name: x")
	doc.Add("", suggest.Mistake{Path: "name", Warning: true, Message: "short"})
	if problems := doc.Problems(); len(problems) != 1 || problems.Err() != nil {
		t.Errorf("got %d problems and error %v, want one warning and no error", len(problems), problems.Err())
	}
}

// An unsupported type is a mistake in the program.
func TestDecodePanicsForOtherTypes(t *testing.T) {
	for name, into := range map[string]any{
		"float": &struct {
			F float64 `yaml:"f"`
		}{},
		"bound": &struct {
			I int `yaml:"i" min:"one"`
		}{},
		"list of lists": &struct {
			L [][]string `yaml:"l"`
		}{},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			strictyaml.Decode(strictyaml.File{Name: "f", Content: []byte("a: b")}, shopKind(), into)
		})
	}
}

// A JSON file may be one line of megabytes. The time must not grow with the square of its length.
func BenchmarkDecodeOneLongLine(b *testing.B) {
	benchmarkDecode(b, `{"name": "d", "shelves": [`,
		`{"label": "N", "colour": "red", "lock": {"key": "small", "digit": 5}}, `, "]}")
}

func BenchmarkDecodeManyLines(b *testing.B) {
	benchmarkDecode(b, "name: d\nshelves:\n", "  - label: N\n    colour: red\n    lock: {key: small, digit: 5}\n", "")
}

func benchmarkDecode(b *testing.B, begin, element, end string) {
	var text strings.Builder
	text.WriteString(begin)
	for i := range 10_000 {
		text.WriteString(strings.Replace(element, "N", fmt.Sprint(i), 1))
	}
	text.WriteString(end)
	kind := shopKind()
	kind.MaxValues *= 2
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		var s shop
		doc := strictyaml.Decode(strictyaml.File{Name: "f", Content: []byte(text.String())}, kind, &s)
		if problems := doc.Problems(); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}
