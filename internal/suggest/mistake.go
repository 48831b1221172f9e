package suggest

// Mistake is something in a value that makes no sense. The check that reports it does not know the source of the value.
type Mistake struct {
	// Path is the place of the mistake, as names of YAML keys: "descriptors[0].rate_limit.unit". "" is the whole value.
	// If Path names an absent value, a source shows the nearest value around it.
	Path string
	// OnKey places the mistake at the key and not at its value. An element of a list is its own key.
	OnKey bool
	// Also are the paths of other values that the mistake follows from. A source reports each value that it cannot
	// read. It then drops every Mistake whose Path, or one of Also, is that value or below it.
	Also []string
	// Lacks means that the map at Path has none of several keys, one of which it needs. It also means that Path is a
	// required key that its map lacks. A source drops the Mistake if it found unknown keys in the map.
	Lacks bool
	// Warning means that the value can still be used.
	Warning bool
	// Message describes the mistake in one line. Hints describe the fix, one line each. Empty hints are ignored.
	Message string
	Hints   []string
}
