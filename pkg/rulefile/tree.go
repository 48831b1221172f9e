package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v4"
)

// kind is what a value of a YAML file is.
type kind uint8

const (
	null kind = iota
	scalar
	mapping
	list
)

// String says it for messages.
func (k kind) String() string {
	return [...]string{"nothing", "a single value", "a map", "a list"}[k]
}

// value is one value of a file, with aliases and merge keys already followed.
type value struct {
	kind kind
	at   place
	// text is what a scalar says; plain says that it stands without quotes, so that 5 is a number and yes a bool.
	text  string
	plain bool
	// fields are a mapping's, in the order of the file, those of a merge key first.
	fields []field
	// items are a list's.
	items []*value
	// broken says that the value is wrong in a way that was reported: nothing is to be said about what it lacks.
	broken bool
}

// field is a key of a mapping with its value.
type field struct {
	key   string
	at    place
	value *value
	// merged says that the field comes from a merge key (<<).
	merged bool
	// hidden are the values of the same key that merge keys brought and this one replaces.
	hidden []*value
}

// maxDepth is deeper than any rule nests.
const maxDepth = 200

// treeReader turns the parser's tree into values.
type treeReader struct {
	*report
	// open are the nodes with an anchor around the current one: an alias to one of them would never end.
	open []*yaml.Node
	// alias is the line of the outermost alias that is being followed, 0 for none.
	alias int
	depth int
	count int
	// full says that a bound was passed and reported: all that follows is nothing.
	full bool
}

// readTree returns the root mapping of a file, nil when the file holds none; that is then reported.
func readTree(r *report) *value {
	node := parseYAML(r)
	if node == nil {
		if len(r.problems) == 0 {
			r.fail(place{}, r.empty, r.begins)
		}
		return nil
	}
	t := &treeReader{report: r}
	root := t.read(node)
	if t.full || root.broken {
		return nil
	}
	if root.kind != mapping {
		r.fail(root.at, "a "+r.noun+" is a map, not "+root.kind.String(), r.begins)
		return nil
	}
	return root
}

// read turns a node into a value. What is wrong is reported, and the value is then broken.
func (t *treeReader) read(n *yaml.Node) *value {
	v := &value{at: t.place(n)}
	t.count++
	t.depth++
	defer func() { t.depth-- }()
	switch {
	case t.full:
		v.broken = true
		return v
	case t.depth > maxDepth:
		t.overflow(v, "nested too deep", "is this the right file?")
		return v
	case t.count > t.maxValues:
		t.overflow(v, "too many values", "aliases (`*name`) repeat what they stand for: do they stand for each other?")
		return v
	case n.Anchor != "":
		t.open = append(t.open, n)
		defer func() { t.open = t.open[:len(t.open)-1] }()
	}
	switch n.Kind {
	case yaml.AliasNode:
		return t.follow(n)
	case yaml.MappingNode:
		v.kind = mapping
		t.mapping(v, n.Content)
	case yaml.SequenceNode:
		v.kind = list
		for _, item := range n.Content {
			v.items = append(v.items, t.read(item))
		}
	case yaml.ScalarNode:
		v.kind, v.text = scalar, n.Value
		v.plain = n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
		if v.plain && isNull(v.text) {
			v.kind = null
		}
	}
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains([]string{"!!str", "!!map", "!!seq"}, n.Tag) {
		t.fail(v.at, "tag "+quoted(n.Tag), "write the value without it")
		v.broken = true
	}
	return v
}

// overflow reports a file that is out of all bounds, once.
func (t *treeReader) overflow(v *value, message, hint string) {
	t.full, v.broken = true, true
	t.fail(v.at, message, hint)
}

// follow reads what an alias (*name) stands for.
func (t *treeReader) follow(n *yaml.Node) *value {
	at := t.place(n)
	if n.Alias == nil || slices.Contains(t.open, n.Alias) {
		t.fail(at, "the anchor "+quoted("&"+n.Value)+" contains itself", "an alias cannot stand inside of what it stands for")
		return &value{at: at, broken: true}
	}
	if t.alias == 0 {
		t.alias = at.line
		defer func() { t.alias = 0 }()
	}
	return t.read(n.Alias)
}

// place is where a node stands: a block map where its first key does.
func (t *treeReader) place(n *yaml.Node) place {
	if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0 && len(n.Content) > 0 && n.Content[0].Kind == yaml.ScalarNode {
		n = n.Content[0]
	}
	return place{line: n.Line, column: n.Column, node: n, alias: t.alias}
}
