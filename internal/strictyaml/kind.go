package strictyaml

import (
	"fmt"
	"reflect"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Kind is what one kind of file is called and how large it can be. All else about YAML and its mistakes is the same
// for all kinds.
type Kind struct {
	// Noun is what such a file is called.
	Noun string
	// Begins says how it begins, for a file that is not one.
	Begins string
	// Empty is the message for a file with nothing in it.
	Empty string
	// Second is the hint for a second document.
	Second string
	// Huge is the hint for a whole number that does not fit 64 bits, "" for the bounds of the key.
	Huge string
	// Sections name the maps of the file, those first in which a misplaced key is more likely meant. A map without
	// a row is named after its key.
	Sections []Section
	// MaxSize is how many bytes a file can have, so that another file put there by mistake does not take the memory
	// of a sidecar. TooLarge is the hint then.
	MaxSize  int64
	TooLarge string
	// Directory says why a directory beside such files is left out, "" for no reason.
	Directory string
	// MaxValues is how many values a file can have, including those that aliases repeat.
	MaxValues int
	// Mask hides secrets in messages, and MaskLine in lines of the file. They keep the length. nil hides nothing.
	Mask, MaskLine func(text string) string
}

// tooLarge is the message for a file with more than MaxSize bytes.
func (k *Kind) tooLarge() string { return fmt.Sprintf("larger than %d MB", k.MaxSize>>20) }

// Section is what messages call a map that is read into a struct.
type Section struct {
	// Type is the struct.
	Type reflect.Type
	// Key is the key under which the map stands, alone or in a list, "" for any.
	Key string
	// Name is what the map is called, unlike any other of its kind of file.
	Name string
	// Where is what its inside is called. Default: "in " and the name.
	Where string
	// Belongs says where a key of this section goes. Default: inside the key.
	Belongs string
	// Example is a small one of it. Default: the example of its field.
	Example string
	// IfList is the hint if there is a list in its place.
	IfList string
	// Remarks are hints for keys that it does not have but people write.
	Remarks map[string]string
}

// section is a Section with its keys.
type section struct {
	Section
	// rank is its row in the kind's sections.
	rank int
	// part is the key at the top of the file that the section is below.
	part string
	keys []string
}

// section returns what a map under a key is called, which may be an element of a list there. The root map has the
// key "".
func (k *Kind) section(t reflect.Type, key, example string, element bool) *section {
	s := &section{Section: Section{Type: t}, rank: len(k.Sections)}
	for i, row := range k.Sections {
		if row.Type == t && (row.Key == key || row.Key == "") {
			s.Section, s.rank = row, i
			break
		}
	}
	name, belongs := suggest.Quoted(key), "it belongs inside "+suggest.Quoted(key+":")
	switch {
	case key == "":
		name, belongs = "the top level of the file", "it belongs at the top level of the file"
	case element:
		name, belongs = "an element of "+name, "it belongs in an element of "+suggest.Quoted(key+":")
	}
	if s.Name == "" {
		s.Name = name
	}
	if s.Where == "" {
		s.Where = "in " + s.Name
		if key == "" {
			s.Where = "at " + s.Name
		}
	}
	if s.Belongs == "" {
		s.Belongs = belongs
	}
	switch {
	case s.Example != "" || example == "":
	case element:
		s.Example = "- " + example
	default:
		s.Example = key + ": " + example
	}
	return s
}
