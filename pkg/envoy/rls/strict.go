package rls

import (
	"math"
	"slices"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// This file has what Codec.Strict changes in answers: reset times, headers and dynamic metadata are those of
// envoyproxy/ratelimit. The limiter has its own setting for the decisions.

// wait returns the reset time of a limit in seconds: in strict mode the end of its window, even if a denial never ends.
func (c *Codec) wait(a *ratelimit.Applied) int64 {
	if c.Strict && a.Limit.Algorithm.Resets() {
		return ratelimit.Seconds(a.Decision.ResetAfter)
	}
	return a.Wait()
}

// addHeaders adds the headers for the client. In strict mode the triple alone has no Retry-After beside it.
func (c *Codec) addHeaders(list *reply.List, res *ratelimit.Result) {
	if !c.Strict || !slices.Equal(c.Headers.Sets, []reply.Set{reply.Triple}) {
		c.Headers.Add(list, res, nil)
		return
	}
	if a := strictest(res); a != nil {
		c.Headers.AddTriple(list, a, c.wait(a))
	}
	var none reply.Headers
	none.Add(list, res, nil) // own headers of limits
}

// strictest returns the limit that envoyproxy/ratelimit sends headers for: the last one that denies and is no quota,
// else the first of those with the least remaining. Limits in shadow mode count. It is nil if no limit applied.
func strictest(res *ratelimit.Result) (limit *ratelimit.Applied) {
	least, denied := int64(math.MaxInt64), false
	for i := range res.Statuses {
		a := res.Statuses[i].Shown
		switch {
		case a == nil:
		case a.Denied() && !a.Quota:
			limit, denied = a, true
		case !denied && a.Decision.Remaining < least:
			limit, least = a, a.Decision.Remaining
		}
	}
	return limit
}

// returnsMetadata reports whether the dynamic metadata has the metadata of the rule of a descriptor.
func (c *Codec) returnsMetadata(d *descriptors.Descriptor, status *ratelimit.Status) bool {
	switch {
	case status.Rule == nil, status.Binding != nil && status.Binding.Denied():
		return false
	case c.Strict:
		return status.Binding != nil && status.Rule.KeepsMetadata(d.Entries)
	}
	return true
}
