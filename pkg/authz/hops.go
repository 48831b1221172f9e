package authz

import (
	"net/netip"
	"slices"
	"strings"
)

// UntrustedHops is about a request whose x-forwarded-for does not end with the address of the peer, where the policy has trusted_hops.
type UntrustedHops struct {
	Domain string
	// Absent is whether the request came without x-forwarded-for. Over HTTP, Envoy passes it on only if allowed_headers names it.
	Absent bool
}

const forwardedFor = "x-forwarded-for"

// trustsHops reports whether the policy takes an address from x-forwarded-for.
func (p *Policy) trustsHops() bool {
	return p.hasAddress(func(a *RemoteAddress) bool { return a.TrustedHops > 0 })
}

// hasAddress reports whether an action of the policy takes an address in such a way.
func (p *Policy) hasAddress(such func(*RemoteAddress) bool) bool {
	has := func(l RateLimit) bool {
		return slices.ContainsFunc(l.Actions, func(a Action) bool { return a.RemoteAddress != nil && such(a.RemoteAddress) })
	}
	return slices.ContainsFunc(p.Limits, has) || slices.ContainsFunc(p.Refused, has)
}

// withoutPeer reports whether x-forwarded-for does not end with the address of the peer. Then Envoy has not appended
// it (use_remote_address: false, its default, or skip_xff_append), and the whole list is what the peer sent. It is
// false where this cannot be known: without a request, for a peer without an IP address, and for one on loopback, for
// which Envoy appends an address of its own.
func (r *Request) withoutPeer() bool {
	peer, err := netip.ParseAddr(r.Source)
	if !r.HTTP || err != nil || peer.Unmap().IsLoopback() {
		return false
	}
	list, _ := r.Headers.Get(forwardedFor)
	last, err := netip.ParseAddr(strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:]))
	return err != nil || last.Unmap() != peer.Unmap()
}
