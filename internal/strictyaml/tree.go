package strictyaml

import (
	"iter"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/internal/suggest"
)

// shape is what a value of a YAML file is.
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

// Value is one value of a file, with aliases and merge keys already followed. nil is an absent one.
type Value struct {
	shape shape
	at    place
	// text is the text of a scalar. plain says that it stands without quotes, so that 5 is a number and yes a bool.
	text  string
	plain bool
	// fields are a mapping's, in the order of the file, those of a merge key first.
	fields []field
	// items are a list's.
	items []*Value
	// unread says that the value could not be read, which was reported; partial that an element of a list could not.
	unread, partial bool
	// meant has an element for each unknown key of a map, which was reported: the key that it may stand for, or "".
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

// field is a key of a mapping with its value.
type field struct {
	key   string
	at    place
	value *Value
	// merged says that the field comes from a merge key (<<), element that it is an element of the list under the key.
	merged, element bool
	// hidden are the values of the same key that merge keys brought and this one replaces.
	hidden []*Value
}

// maxDepth is deeper than people nest.
const maxDepth = 200

// treeReader turns the tree of the parser into values.
type treeReader struct {
	*Document
	// open are the nodes with an anchor around the current one: an alias to one of them would never end.
	open []*yaml.Node
	// alias is the line of the outermost alias that is being followed, 0 for none.
	alias int
	depth int
	count int
	// full says that a bound was passed, which was reported: nothing after it is read.
	full bool
}

// readTree returns the root map of a file, nil if the file has none; that is then reported.
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
	if root.shape != mapping {
		doc.fail(root.at, "a "+doc.kind.Noun+" is a map, not "+root.shape.String(), doc.kind.Begins)
		return nil
	}
	return root
}

// read turns a node into a value. What is wrong is reported, and the value is then marked as unread.
func (t *treeReader) read(n *yaml.Node) *Value {
	v := &Value{at: t.place(n)}
	t.count++
	t.depth++
	defer func() { t.depth-- }()
	switch {
	case t.full:
	case t.depth > maxDepth:
		t.full = true
		t.fail(v.at, "nested too deep", "is this the right file?")
	case t.count > t.kind.MaxValues:
		t.full = true
		t.fail(v.at, "too many values", "aliases (`*name`) repeat what they stand for: do they stand for each other?")
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
		v.shape = list
		for _, item := range n.Content {
			v.items = append(v.items, t.read(item))
		}
	case yaml.ScalarNode:
		v.shape, v.text = scalar, n.Value
		v.plain = n.Style&^yaml.FlowStyle == 0
		if v.plain && isNull(v.text) {
			v.shape = null
		}
	}
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains([]string{"!!str", "!!map", "!!seq"}, n.Tag) {
		t.fail(v.at, "tag "+suggest.Quoted(n.Tag), "write the value without it")
		v.unread = true
	}
	return v
}

// follow reads what an alias (*name) stands for.
func (t *treeReader) follow(n *yaml.Node) *Value {
	at := t.place(n)
	if n.Alias == nil || slices.Contains(t.open, n.Alias) {
		t.fail(at, "the anchor "+suggest.Quoted("&"+n.Value)+" contains itself",
			"an alias cannot stand inside of what it stands for")
		return &Value{at: at, unread: true}
	}
	if t.alias == 0 {
		t.alias = at.line
		defer func() { t.alias = 0 }()
	}
	return t.read(n.Alias)
}

// place returns where a node stands. A block map stands where its first key does.
func (t *treeReader) place(n *yaml.Node) place {
	block := n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0
	if block && len(n.Content) > 0 && n.Content[0].Kind == yaml.ScalarNode {
		n = n.Content[0]
	}
	return place{line: n.Line, column: n.Column, node: n, alias: t.alias}
}
