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

// assign gives each limit of one namespace a descriptor. It reports limits for which there is none.
func (r *limitador) assign(limits []*limit) (trees []*tree) {
	var left []*limit
	if len(r.given) == 0 {
		left = r.assignAlone(limits, &trees)
	} else {
		left = r.assignGiven(limits, &trees)
	}
	for _, l := range left {
		r.reportUnassigned(l)
	}
	return slices.DeleteFunc(trees, func(t *tree) bool { return len(t.limits) == 0 })
}

// assignAlone assigns limits if the descriptors are not known. A limit that reads one entry gets a descriptor of only
// that entry, unless other limits read other entries of the same descriptor. assignAlone returns the other limits.
func (r *limitador) assignAlone(limits []*limit, trees *[]*tree) (left []*limit) {
	alone := map[int]*tree{} // by descriptor, nil if its limits read different entries
	for _, l := range limits {
		switch t, known := alone[l.descriptor]; {
		case !known && len(l.keys) == 1:
			alone[l.descriptor] = &tree{keys: l.keys}
		case t != nil && slices.Equal(t.keys, l.keys):
		default:
			alone[l.descriptor] = nil
		}
	}
	for _, l := range limits {
		t := alone[l.descriptor]
		if t == nil {
			left = append(left, l)
			continue
		}
		i := slices.IndexFunc(*trees, func(other *tree) bool { return slices.Equal(other.keys, t.keys) })
		if i < 0 {
			i = len(*trees)
			*trees = append(*trees, t)
		}
		r.put((*trees)[i], l)
	}
	return left
}

// assignGiven assigns limits to the given descriptors: first to those with exactly the entries that a limit reads, then
// to those that have more. The other limits are returned.
func (r *limitador) assignGiven(limits []*limit, trees *[]*tree) (left []*limit) {
	for _, keys := range r.given {
		*trees = append(*trees, &tree{keys: keys})
	}
	for _, exact := range []bool{true, false} {
		left = nil
		for _, l := range limits {
			i := slices.IndexFunc(*trees, func(t *tree) bool { return t.takes(l, exact) })
			if i < 0 {
				left = append(left, l)
				continue
			}
			r.put((*trees)[i], l)
		}
		limits = left
	}
	return left
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
	var keys []string
	byKey := map[string][]branch{}
	for _, b := range branches {
		key := b.keys[depth]
		if byKey[key] == nil {
			keys = append(keys, key)
		}
		byKey[key] = append(byKey[key], b)
	}
	for _, key := range keys {
		nodes = append(nodes, r.entry(key, r.compatible(key, byKey[key]), depth, budget)...)
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
	kept := map[int64]*limit{}
	var windows []int64
	for _, l := range limits {
		window := l.spec.Unit.Micros() * int64(l.spec.Multiplier)
		first := kept[window]
		if first == nil {
			windows = append(windows, window)
		}
		if first == nil || l.spec.Requests < first.spec.Requests {
			kept[window] = l
		}
		if first != nil && maps.Equal(first.equal, l.equal) {
			r.Warn(l.at, "this limit and the one at "+r.At(first.at)+" count the same requests in the same window: "+
				"only the smaller one is kept")
		}
	}
	for _, window := range windows {
		l := kept[window]
		list = append(list, ratelimit.Limit{
			Unit: l.spec.Unit, Multiplier: int64(l.spec.Multiplier), Requests: &l.spec.Requests, Name: l.name,
			Position: r.At(l.at),
		})
	}
	return list
}
