package strictyaml_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// TestReference describes the shop file of the other tests, with all of its keys and types.
func TestReference(t *testing.T) {
	top := strictyaml.Reference(shopKind(), reflect.TypeFor[shop](), "About the file.\n\n## `desk.bell`\n\nIt rings.\n")
	var got strings.Builder
	for _, f := range top.All() {
		fmt.Fprintf(&got, "%s: %s", f.Path, f.Type)
		if f.Same != nil {
			got.WriteString(", the keys of " + f.Same.Path)
		}
		if f.Note != "" {
			got.WriteString(" (" + f.Note + ")")
		}
		got.WriteString("\n")
	}
	if diff := cmp.Diff(description, strings.ReplaceAll(got.String(), "`", "")); diff != "" {
		t.Error(diff)
	}
	if f := top.At("shelves.shelves.locks.digit"); f == nil || f.Path != "shelves.lock.digit" || f.Name() != "digit" {
		t.Errorf("found %+v", f)
	}
	if f := top.At("shelves.lokcs"); f != nil {
		t.Errorf("found %+v", f)
	}
	choices := []string{"One of `key` or `digit` is required.", "At most one of `light` or `noise`."}
	if got := top.At("shelves.locks").Choices(); !slices.Equal(got, choices) {
		t.Errorf("choices %q, want %q", got, choices)
	}
}

const description = `: map (About the file.)
name: text
shelves: list of maps
shelves.label: text
shelves.count: whole number, 0 or more
shelves.weight: whole number, 1 to 1000
shelves.rank: whole number, -128 to 127
shelves.steps: whole number, 0 or more
shelves.colour: red, green or blue
shelves.open: true or false
shelves.wait: duration
shelves.tags: list of texts
shelves.colours: list of texts
shelves.codes: list of texts
shelves.code: text
shelves.notes: map
shelves.lock: map
shelves.lock.key: text
shelves.lock.digit: whole number, 0 to 9
shelves.lock.light: true or false
shelves.lock.noise: true or false
shelves.locks: list of maps, the keys of shelves.lock
shelves.shelves: list of maps, the keys of shelves
shelves.row: whole number, 1 to 40
shelves.back: true or false
desk: map
desk.staff: whole number, 0 to 5
desk.bell: map (It rings.)
desk.bell.tone: text
desk.bell.song: text or list
desk.bell.sign: map
desk.bell.sign.text: text
desk.bell.sign.tags: list of texts
end: true or false
`
