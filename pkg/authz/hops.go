package authz

import (
	"net/netip"
	"strings"
)

// UntrustedHops describes a request whose x-forwarded-for does not end with the address of the peer, although the
// policy has trusted_hops.
type UntrustedHops struct {
	Domain string
	// Absent is true if the request has no x-forwarded-for. Over HTTP, Envoy forwards it only if allowed_headers lists it.
	Absent bool
}

const forwardedFor = "x-forwarded-for"

// withoutPeer reports whether x-forwarded-for does not end with the address of the peer. Then Envoy has not appended it
// (use_remote_address: false, its default, or skip_xff_append), and the peer chose the whole list. It returns false if
// this is unknown: without HTTP, for a peer without an IP address, and for one on loopback. For the last one, Envoy
// appends one of its own addresses.
func (r *Request) withoutPeer() bool {
	peer, err := netip.ParseAddr(r.Source)
	if !r.HTTP || err != nil || peer.Unmap().IsLoopback() {
		return false
	}
	list, _ := r.Headers.Get(forwardedFor)
	last, err := netip.ParseAddr(strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:]))
	return err != nil || last.Unmap() != peer.Unmap()
}
