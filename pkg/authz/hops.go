package authz

import (
	"net/netip"
	"strings"
)

// UntrustedHops is about a request whose x-forwarded-for does not end with the address of the peer, where the policy has trusted_hops.
type UntrustedHops struct {
	Domain string
	// Absent is whether the request came without x-forwarded-for. Over HTTP, Envoy passes it on only if allowed_headers names it.
	Absent bool
}

const forwardedFor = "x-forwarded-for"

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
