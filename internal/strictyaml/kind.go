package strictyaml

import "reflect"

// Kind describes one kind of file: its names in messages and its limits of size.
type Kind struct {
	// Noun is the name of such a file.
	Noun string
	// Begins describes the beginning of such a file. It is the hint for a file of another kind.
	Begins string
	// Empty is the message for an empty file. Default: there is nothing in the file.
	Empty string
	// Second is the hint for a second document.
	Second string
	// Huge is the hint for a whole number that does not fit 64 bits, "" for the bounds of the key.
	Huge string
	// List means that the whole file is a list. Such a file can be read, but not decoded.
	List bool
	// Sections name maps, those first for which a misplaced key is more likely meant. Others are named after their keys.
	Sections []Section
	// MaxSize is how many bytes a file can have, which protects memory. TooLarge is the hint for a larger file.
	MaxSize  int64
	TooLarge string
	// Directory is the reason why a directory beside such files is left out, "" for none.
	Directory string
	// MaxValues is how many values a file can have, including those that aliases repeat.
	MaxValues int
	// Mask hides secrets in messages and in lines of the file. It keeps the length. nil hides nothing.
	Mask func(text string) string
}

// Section is the name of a map in messages, for a map that is read into a struct.
type Section struct {
	// Type is the struct.
	Type reflect.Type
	// Key is the key of the map, or of the list that it is in. "" is any key.
	Key string
	// Name is the name of the map, unique within its kind of file.
	Name string
	// Belongs is the hint for a misplaced key of this map. Default: inside the key.
	Belongs string
	// Example is a small example of the map. Default: the example of its field.
	Example string
	// IfList is the hint for a list in place of the map.
	IfList string
	// IfText is the hint for a text in place of the map.
	IfText string
	// Remarks are hints for keys that the map does not have but people write.
	Remarks map[string]string
}
