package suggest

// Mistake is something in a value that makes no sense, as a check of its type reports it. The check does not know the
// source that the value was read from.
type Mistake struct {
	// Path says where the mistake is, in names of YAML keys: "descriptors[0].rate_limit.unit". "" is the whole value.
	// It may name something absent: a source then shows the nearest thing around it that is there.
	Path string
	// OnKey says that the mistake is at the key, and not at its value. An element of a list is its own key.
	OnKey bool
	// Also are the paths of other values that the mistake follows from. A source reports a value that it could not
	// read itself; it drops each Mistake whose Path, or one of Also, is that value or below it.
	Also []string
	// Lacks says that the map at Path has none of several keys, one of which it needs, or that Path is a key that its
	// map needs and lacks. A source drops the Mistake if it found unknown keys in the map.
	Lacks bool
	// Warning says that the value can be used all the same.
	Warning bool
	// Message says what is wrong, in one line. Hints say how to fix it, one line each. Empty hints are ignored.
	Message string
	Hints   []string
}
