package descriptors

import (
	"cmp"
	"math"
)

// wildcards are the patterns with a `*` of one node of a Tree.
type wildcards[T any] struct {
	nodes map[Pattern]*Tree[T]
	keys  map[string]*wildcardKey[T]
	// starred are the elements of keys that have a `*` in the key. They are tried one after the other: keys are words of
	// Envoy's configuration, so there are few. Values come from clients.
	starred []*wildcardKey[T]
}

// wildcardKey has the patterns with one key, or one pattern of keys.
type wildcardKey[T any] struct {
	key    glob
	values index[T]
}

// wildcard is the pattern of a value, and the child that it leads to.
type wildcard[T any] struct {
	glob
	rank uint64 // the lowest of those that match wins
	node *Tree[T]
}

func (w *wildcards[T]) add(p Pattern, order WildcardOrder) *Tree[T] {
	if node := w.nodes[p]; node != nil {
		return node
	}
	k := w.keys[p.Key]
	if k == nil {
		k = &wildcardKey[T]{key: newGlob(p.Key)}
		w.keys[p.Key] = k
		if k.key.starred() {
			w.starred = append(w.starred, k)
		}
	}
	value := newGlob(cmp.Or(p.Value, "*"))
	added := &wildcard[T]{glob: value, rank: uint64(len(w.nodes)), node: new(Tree[T])}
	if order == MostSpecific {
		added.rank |= (math.MaxUint32 - uint64(k.key.literals+value.literals)) << 32
	}
	k.values.add(added)
	w.nodes[p] = added.node
	return added.node
}

// find returns the child of the winning wildcard that matches an entry, or nil.
func (w *wildcards[T]) find(e Entry) *Tree[T] {
	var winner *wildcard[T]
	if k := w.keys[e.Key]; k != nil {
		winner = k.values.find(e.Value, winner)
	}
	for _, k := range w.starred {
		if k.key.match(e.Key) {
			winner = k.values.find(e.Value, winner)
		}
	}
	if winner == nil {
		return nil
	}
	return winner.node
}
