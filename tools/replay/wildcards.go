package replay

import (
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// wildcards are the rules of a domain twice: by the order of the file, as envoyproxy/ratelimit chooses a wildcard, and
// by the most specific wildcard. nil has no rules.
type wildcards struct {
	byFile, bySpecific descriptors.Tree[*ratelimit.Node]
}

func grow(parent *descriptors.Tree[*ratelimit.Node], nodes []ratelimit.Node, order descriptors.WildcardOrder) {
	for i := range nodes {
		n := &nodes[i]
		tree := parent.Add(descriptors.Pattern{Key: n.Key, Value: n.Value}, order)
		tree.Value = n
		grow(tree, n.Descriptors, order)
	}
}

// ambiguous reports whether the two orders lead a descriptor to different rules.
func (w *wildcards) ambiguous(d *commonv3.RateLimitDescriptor) bool {
	if w == nil {
		return false
	}
	entries := make([]descriptors.Entry, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()}
	}
	a, b := w.byFile.Find(entries), w.bySpecific.Find(entries)
	return (a == nil) != (b == nil) || a != nil && a.Value != b.Value
}
