package descriptors

import "strings"

// Pattern matches one level of a rule. `*` stands for any number of characters. An empty Value matches any value.
type Pattern struct{ Key, Value string }

// Wildcard reports whether the pattern has a `*`.
func (p Pattern) Wildcard() bool {
	return strings.Contains(p.Key, "*") || strings.Contains(p.Value, "*")
}

// WildcardOrder selects the wildcard that wins if several match an entry.
type WildcardOrder uint8

const (
	// MostSpecific selects the wildcard with the most literal characters; of equals, the one added first.
	MostSpecific WildcardOrder = iota
	// FileOrder selects the wildcard added first, as envoyproxy/ratelimit does. An entry that repeats the text of a
	// pattern matches that pattern before all others.
	FileOrder
)

// Tree finds the value of a path of patterns. The zero value is empty. One goroutine builds it; then it is only read.
// Neither Add nor Find tries the patterns one after the other: both stay fast with 100,000 of them.
type Tree[T any] struct {
	// Value is the value of this node.
	Value T

	exact     map[Entry]*Tree[T]
	wildcards *wildcards[T] // nil for none
	keys      map[string]*Tree[T]
	networks  map[string]inNetworks[T] // by key
}

// Networks finds in which of several networks a value is. *networks.Table is one.
type Networks interface {
	Find(value string) (network int, ok bool)
}

// inNetworks are the children for values of one key in networks, by the index that Find returns.
type inNetworks[T any] struct {
	Networks
	nodes []*Tree[T]
}

// AddNetworks adds a child for values of a key in each of n networks, in place of those that it added before.
func (t *Tree[T]) AddNetworks(key string, find Networks, n int) []*Tree[T] {
	if t.networks == nil {
		t.networks = map[string]inNetworks[T]{}
	}
	nodes := make([]*Tree[T], n)
	for i := range nodes {
		nodes[i] = new(Tree[T])
	}
	t.networks[key] = inNetworks[T]{find, nodes}
	return nodes
}

// Add returns the child with this pattern and creates it if needed.
func (t *Tree[T]) Add(p Pattern, order WildcardOrder) *Tree[T] {
	switch {
	case p.Wildcard():
		if t.wildcards == nil {
			t.wildcards = &wildcards[T]{nodes: map[Pattern]*Tree[T]{}, keys: map[string]*wildcardKey[T]{}}
		}
		node := t.wildcards.add(p, order)
		if order == FileOrder && p.Value != "" {
			if t.exact == nil {
				t.exact = make(map[Entry]*Tree[T])
			}
			t.exact[Entry(p)] = node
		}
		return node
	case p.Value == "":
		return child(&t.keys, p.Key)
	}
	return child(&t.exact, Entry(p))
}

func child[K comparable, T any](children *map[K]*Tree[T], key K) *Tree[T] {
	if node := (*children)[key]; node != nil {
		return node
	}
	if *children == nil {
		*children = make(map[K]*Tree[T])
	}
	node := new(Tree[T])
	(*children)[key] = node
	return node
}

// Find returns the node at which a walk of the entries ends, or nil if a level has no match.
func (t *Tree[T]) Find(entries []Entry) *Tree[T] {
	node, matched := t.Walk(entries)
	if matched < len(entries) {
		return nil
	}
	return node
}

// Walk walks the tree, one level for each entry. At each level it takes the child with exactly this key and value, else
// that of the network, else the winning wildcard, else the child with only the key. It never goes back to another
// child. It returns the last node and the number of entries that matched.
func (t *Tree[T]) Walk(entries []Entry) (last *Tree[T], matched int) {
	for i, e := range entries {
		next := t.step(e)
		if next == nil {
			return t, i
		}
		t = next
	}
	return t, len(entries)
}

func (t *Tree[T]) step(e Entry) *Tree[T] {
	if node := t.exact[e]; node != nil {
		return node
	}
	if t.networks != nil {
		if of, ok := t.networks[e.Key]; ok {
			if i, ok := of.Find(e.Value); ok {
				return of.nodes[i]
			}
		}
	}
	if t.wildcards != nil {
		if node := t.wildcards.find(e); node != nil {
			return node
		}
	}
	return t.keys[e.Key]
}
