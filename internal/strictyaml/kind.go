package strictyaml

import "reflect"

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

// Section is what messages call a map that is read into a struct.
type Section struct {
	// Type is the struct.
	Type reflect.Type
	// Key is the key under which the map stands, alone or in a list, "" for any.
	Key string
	// Name is what the map is called, unlike any other of its kind of file.
	Name string
	// Belongs says where a key of this section goes. Default: inside the key.
	Belongs string
	// Example is a small one of it. Default: the example of its field.
	Example string
	// IfList is the hint if there is a list in its place.
	IfList string
	// Remarks are hints for keys that it does not have but people write.
	Remarks map[string]string
}
