package strictyaml

import (
	"iter"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/internal/suggest"
)

// shape is the shape of a YAML value.
type shape uint8

const (
	null shape = iota
	scalar
	mapping
	list
)

// String returns the name for messages.
func (k shape) String() string {
	return [...]string{"nothing", "a single value", "a map", "a list"}[k]
}

// Value is one value of a file, with aliases and merge keys resolved. nil is an absent value.
type Value struct {
	shape shape
	at    place
	// text is the text of a scalar. plain means that it has no quotes, so that 5 is a number and yes a bool.
	text  string
	plain bool
	// fields are those of a mapping, in the order of the file, those of a merge key first.
	fields []field
	items  []*Value // of a list
	// unread means that the value could not be read, partial that an element of a list could not. Both were reported.
	unread, partial bool
	// meant has an element for each reported unknown key of a map: the key that it may stand for, or "".
	meant []string
}

// Fields returns the keys and values of a map, in the order of the file, those of a merge key first.
func (v *Value) Fields() iter.Seq2[string, *Value] {
	return func(yield func(string, *Value) bool) {
		if v == nil {
			return
		}
		for _, f := range v.fields {
			if !yield(f.key, f.value) {
				return
			}
		}
	}
}

// Items returns the elements of a list.
func (v *Value) Items() []*Value {
	if v == nil {
		return nil
	}
	return v.items
}

// Text returns the text of a single value, "" for any other.
func (v *Value) Text() string {
	if v == nil || v.shape != scalar {
		return ""
	}
	return v.text
}

// IsMap reports whether the value is a map.
func (v *Value) IsMap() bool { return v != nil && v.shape == mapping }

// IsList reports whether the value is a list.
func (v *Value) IsList() bool { return v != nil && v.shape == list }

// IsText reports whether the value is a single value. 5 and true are texts, too.
func (v *Value) IsText() bool { return v != nil && v.shape == scalar }

// IsAbsent reports whether there is no value: no key, or a key with nothing or null behind it.
func (v *Value) IsAbsent() bool { return v == nil || v.shape == null }

// field is a key of a mapping with its value.
type field struct {
	key   string
	at    place
	value *Value
	// merged means that the field comes from a merge key (<<), element that it is an element of the key's list.
	merged, element bool
	// hidden are the values of the same key from merge keys, which this value replaces.
	hidden []*Value
}

// maxDepth is more than any file needs.
const maxDepth = 200

// treeReader turns the tree of the parser into values.
type treeReader struct {
	*Document
	// open are the nodes with an anchor around the current node. An alias to one of them would never end.
	open []*yaml.Node
	// alias is the line of the outermost alias that is being followed, 0 for none.
	alias int
	depth int
	count int
	// full means that a bound was exceeded and reported. Nothing more is read.
	full bool
}

// readTree returns the root of a file, a map or with Kind.List a list. If there is none, it reports that.
func readTree(doc *Document) *Value {
	if !doc.checkText() {
		return nil
	}
	node := parseYAML(doc)
	if node == nil {
		return nil
	}
	t := &treeReader{Document: doc}
	root := t.read(node)
	if t.full || root.unread {
		return nil
	}
	want := mapping
	if doc.kind.List {
		want = list
	}
	if root.shape != want {
		doc.fail(root.at, "a "+doc.kind.Noun+" is "+want.String()+", not "+root.shape.String(), doc.kind.Begins)
		return nil
	}
	return root
}

// read turns a node into a value. It reports what it cannot read and marks the value as unread.
func (t *treeReader) read(n *yaml.Node) *Value {
	v := &Value{at: t.place(n)}
	t.count++
	t.depth++
	defer func() { t.depth-- }()
	switch {
	case t.full:
	case t.depth > maxDepth:
		t.full = true
		t.fail(v.at, "nested too deeply", "is this the right file?")
	case t.count > t.kind.MaxValues:
		t.full = true
		t.fail(v.at, "too many values", "each alias (`*name`) repeats the value of its anchor")
	}
	if t.full {
		v.unread = true
		return v
	}
	if n.Anchor != "" {
		t.open = append(t.open, n)
		defer func() { t.open = t.open[:len(t.open)-1] }()
	}
	switch n.Kind {
	case yaml.AliasNode:
		return t.follow(n)
	case yaml.MappingNode:
		v.shape = mapping
		t.mapping(v, n.Content)
	case yaml.SequenceNode:
		v.shape, v.items = list, make([]*Value, len(n.Content))
		for i, item := range n.Content {
			v.items[i] = t.read(item)
			if len(t.open) == 0 { // else an alias may need the node
				n.Content[i] = nil // so that a large file is not in memory twice
			}
		}
	case yaml.ScalarNode:
		v.shape, v.text = scalar, n.Value
		v.plain = n.Style&^yaml.FlowStyle == 0
		if v.plain && n.Tag == "!!null" {
			v.shape = null
		}
	}
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains([]string{"!!str", "!!map", "!!seq"}, n.Tag) {
		t.fail(v.at, "the tag "+suggest.Quoted(n.Tag)+" is not supported", "write the value without it")
		v.unread = true
	}
	return v
}

// follow reads the value of an alias (*name).
func (t *treeReader) follow(n *yaml.Node) *Value {
	at := t.place(n)
	if n.Alias == nil || slices.Contains(t.open, n.Alias) {
		t.fail(at, "the anchor "+suggest.Quoted("&"+n.Value)+" contains itself",
			"an alias cannot be inside the value of its anchor")
		return &Value{at: at, unread: true}
	}
	if t.alias == 0 {
		t.alias = at.line
		defer func() { t.alias = 0 }()
	}
	return t.read(n.Alias)
}

// place returns the place of a node. The place of a block map is that of its first key.
func (t *treeReader) place(n *yaml.Node) place {
	block := n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0
	if block && len(n.Content) > 0 && n.Content[0].Kind == yaml.ScalarNode {
		n = n.Content[0]
	}
	at := place{line: n.Line, column: n.Column, alias: t.alias, word: n.Kind == yaml.AliasNode}
	if n.Kind == yaml.ScalarNode {
		at.text, at.word = n.Value, true
	}
	return at
}
