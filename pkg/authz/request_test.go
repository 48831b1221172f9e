package authz

import (
	"testing"

	"github.com/extauthz/extauthz/pkg/reply"
)

func TestWithoutPeer(t *testing.T) {
	for _, c := range []struct {
		name, source string
		forwarded    []string
		tcp, large   bool
		want         bool
	}{
		{name: "Envoy has appended", source: "192.0.2.1", forwarded: []string{"203.0.113.1,192.0.2.1"}},
		{name: "there was nothing before", source: "2001:db8::1", forwarded: []string{"2001:db8::1"}},
		{name: "each by itself, with spaces", source: "192.0.2.1", forwarded: []string{"x", "y, 192.0.2.1 "}},
		{name: "IPv4 in IPv6", source: "::ffff:192.0.2.1", forwarded: []string{"192.0.2.1"}},
		{name: "another spelling", source: "2001:db8::1", forwarded: []string{"2001:DB8:0::1"}},
		{name: "Envoy has not appended", source: "192.0.2.1", forwarded: []string{"203.0.113.1"}, want: true},
		{name: "the peer stands before others", source: "192.0.2.1", forwarded: []string{"192.0.2.1,x"}, want: true},
		{name: "no list", source: "192.0.2.1", want: true},
		{name: "headers are missing", source: "192.0.2.1", large: true},
		{name: "no address", source: "192.0.2.1", forwarded: []string{"192.0.2.1,"}, want: true},
		{name: "on loopback, where Envoy appends another", source: "127.0.0.1", forwarded: []string{"192.0.2.9"}},
		{name: "a peer without an address", source: "/run/envoy.sock", forwarded: []string{"192.0.2.9"}},
		{name: "an unknown peer", forwarded: []string{"192.0.2.9"}},
		{name: "a connection", source: "192.0.2.1", tcp: true},
	} {
		r := &Request{HTTP: !c.tcp, TooLarge: c.large, Source: c.source}
		for _, value := range c.forwarded {
			r.Headers = append(r.Headers, reply.Header{Name: forwardedFor, Value: value})
		}
		if got := r.withoutPeer(); got != c.want {
			t.Errorf("%s: peer %q, x-forwarded-for %q: %t, want %t", c.name, c.source, c.forwarded, got, c.want)
		}
	}
}
