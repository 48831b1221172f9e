package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// tree is a descriptor of a domain, and the limits that read its entries. All of them read the same ones.
type tree struct {
	keys   []string // in the order of the entries
	reads  []string // the keys that the limits read, sorted
	limits []*limit
	// refused means that limits of the tree were reported, because the rules of another tree are in their way.
	refused bool
}

// assign gives each limit of one namespace a descriptor: first one with exactly the entries that the limit reads, then
// one that has more. It reports limits for which there is none.
func (r *limitador) assign(limits []*limit) (trees []*tree) {
	given, left := r.given, []*limit(nil)
	if len(given) == 0 {
		given, limits, left = singleEntries(limits)
	}
	for _, keys := range given {
		trees = append(trees, &tree{keys: keys})
	}
	for _, exact := range []bool{true, false} {
		limits = slices.DeleteFunc(limits, func(l *limit) bool {
			i := slices.IndexFunc(trees, func(t *tree) bool { return t.takes(l, exact) })
			if i >= 0 {
				r.put(trees[i], l)
			}
			return i >= 0
		})
	}
	for _, l := range append(limits, left...) {
		r.reportUnassigned(l)
	}
	return slices.DeleteFunc(trees, func(t *tree) bool { return len(t.limits) == 0 })
}

// singleEntries returns descriptors with one entry, for limits that read that entry alone. Limits that read other
// entries, or whose descriptor has other entries for other limits, are left.
func singleEntries(limits []*limit) (descriptors [][]string, single, left []*limit) {
	alone := map[int][]string{} // by descriptor, nil if its limits read different entries
	for _, l := range limits {
		switch keys, known := alone[l.descriptor]; {
		case !known && len(l.keys) == 1:
			alone[l.descriptor] = l.keys
		case !known || !slices.Equal(keys, l.keys):
			alone[l.descriptor] = nil
		}
	}
	for _, l := range limits {
		keys := alone[l.descriptor]
		if keys == nil {
			left = append(left, l)
			continue
		}
		single = append(single, l)
		if !slices.ContainsFunc(descriptors, func(other []string) bool { return slices.Equal(other, keys) }) {
			descriptors = append(descriptors, keys)
		}
	}
	return descriptors, single, left
}

// takes reports whether a limit can be in a tree: the descriptor has its entries, and the limits of the tree read the
// same ones. With exact, the descriptor has no other entries.
func (t *tree) takes(l *limit, exact bool) bool {
	if slices.ContainsFunc(l.keys, func(key string) bool { return !slices.Contains(t.keys, key) }) {
		return false
	}
	if exact {
		return len(l.keys) == len(t.keys)
	}
	return len(t.limits) == 0 || slices.Equal(t.reads, l.keys)
}

// put adds a limit to a tree, unless another limit of the tree reads another descriptor.
func (r *limitador) put(t *tree, l *limit) {
	if len(t.limits) > 0 && t.limits[0].descriptor != l.descriptor {
		r.Fail(l.at, fmt.Sprintf("this limit reads descriptor %d, and the one at %s reads descriptor %d, with the same keys",
			l.descriptor, r.At(t.limits[0].at), t.limits[0].descriptor),
			"a rule matches every descriptor with its entries: let Envoy send one of them under other keys")
		return
	}
	t.limits, t.reads = append(t.limits, l), l.keys
}

// reportUnassigned reports a limit for which there is no descriptor.
func (r *limitador) reportUnassigned(l *limit) {
	keys := strings.Join(l.keys, ",")
	switch {
	case len(l.keys) == 0:
		r.Fail(l.at, "this limit applies to every request of its namespace, and a rule needs an entry",
			"let Envoy send one more descriptor with the entry generic_key, and add --descriptor generic_key")
	case len(r.given) > 0:
		r.Fail(l.at, "no free --descriptor has the entries "+suggest.List(l.keys, " and "),
			"a descriptor matches one rule: let Envoy send one more, and add --descriptor "+keys)
	case len(l.keys) > 1:
		r.Fail(l.at, "the order of the entries "+suggest.List(l.keys, " and ")+" is not known, and a rule depends on it",
			"give the entries as Envoy sends them, such as --descriptor "+keys)
	default:
		r.Fail(l.at, "limits of this namespace read different entries of one descriptor, which matches one rule here",
			"let Envoy send a descriptor for each, and name all of them, such as --descriptor "+keys)
	}
}

// maxWork bounds the limits of all rules of a namespace, because conditions on several entries multiply them.
const maxWork = 1_000_000

// branch is a tree and those of its limits that apply so far.
type branch struct {
	*tree
	limits []*limit
}

// nodes returns the rules of the trees.
func (r *limitador) nodes(trees []*tree) []ratelimit.Node {
	var branches []branch
	for _, t := range trees {
		branches = append(branches, branch{t, t.limits})
	}
	budget := maxWork
	nodes := r.level(branches, 0, &budget)
	if budget < 0 {
		r.Fail(trees[0].limits[0].at, "the conditions of this namespace make too many rules",
			"write fewer limits, or split the namespace")
		return nil
	}
	return nodes
}

// level returns the rules for one entry of descriptors whose entries before it are the same, and the rules below.
func (r *limitador) level(branches []branch, depth int, budget *int) (nodes []ratelimit.Node) {
	for _, below := range grouped(branches, func(b branch) string { return b.keys[depth] }) {
		key := below[0].keys[depth]
		nodes = append(nodes, r.entry(key, r.compatible(key, below), depth, budget)...)
	}
	return nodes
}

// compatible returns the branches that can be below one entry: all of them read it, or none. It reports the others.
func (r *limitador) compatible(key string, branches []branch) []branch {
	read := slices.Contains(branches[0].reads, key)
	return slices.DeleteFunc(branches, func(b branch) bool {
		if slices.Contains(b.reads, key) == read {
			return false
		}
		b.refused = true
		r.Fail(b.limits[0].at, "another limit also needs a descriptor that begins with "+suggest.Quoted(key)+
			", and only one of the two reads this entry",
			"let Envoy send the descriptor of this limit with exactly the entries "+suggest.List(b.reads, " and "))
		return true
	})
}

// entry returns the rules for an entry and those below them. A rule for a value also has the limits without a condition
// on the entry, because only the rule for the value is matched.
func (r *limitador) entry(key string, branches []branch, depth int, budget *int) (nodes []ratelimit.Node) {
	var values []string
	seen := map[string]bool{}
	for _, b := range branches {
		for _, l := range b.limits {
			if v, ok := l.equal[key]; ok && !seen[v] {
				seen[v] = true
				values = append(values, v)
			}
		}
	}
	other := ratelimit.Node{Key: key}
	if !slices.Contains(branches[0].reads, key) {
		other = ratelimit.Node{Key: key, Value: "*", ShareThreshold: true} // all values share one bucket
	}
	for _, value := range append(values, "") {
		n := other
		if value != "" {
			n = ratelimit.Node{Key: key, Value: value}
		}
		var deeper []branch
		for _, b := range branches {
			if *budget -= 1 + len(b.limits); *budget < 0 {
				return nil
			}
			active := slices.DeleteFunc(slices.Clone(b.limits), func(l *limit) bool {
				v, ok := l.equal[key]
				return ok && v != value
			})
			switch {
			case len(active) == 0:
			case depth+1 == len(b.keys):
				n.Limits = r.leaf(active)
			default:
				deeper = append(deeper, branch{b.tree, active})
			}
		}
		if len(deeper) > 0 {
			n.Descriptors = r.level(deeper, depth+1, budget)
		}
		if len(n.Limits) > 0 || len(n.Descriptors) > 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// leaf returns the limits of one rule. Of limits with the same window only the smallest can deny.
func (r *limitador) leaf(limits []*limit) (list []ratelimit.Limit) {
	window := func(l *limit) int64 { return l.spec.Unit.Micros() * int64(l.spec.Multiplier) }
	for _, same := range grouped(limits, window) {
		least := same[0]
		for _, l := range same[1:] {
			if maps.Equal(least.equal, l.equal) {
				r.Warn(l.at, "this limit and the one at "+r.At(least.at)+" count the same requests in the same window: "+
					"only the smaller one is kept")
			}
			if l.spec.Requests < least.spec.Requests {
				least = l
			}
		}
		list = append(list, ratelimit.Limit{
			Unit: least.spec.Unit, Multiplier: int64(least.spec.Multiplier), Requests: &least.spec.Requests,
			Name: least.name, Position: r.At(least.at),
		})
	}
	return list
}

// grouped returns elements by a key, in the order of the first element of each key.
func grouped[K comparable, E any](elements []E, key func(E) K) (groups [][]E) {
	at := map[K]int{}
	for _, e := range elements {
		i, known := at[key(e)]
		if !known {
			i = len(groups)
			at[key(e)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}
