package authz

import (
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// checkNetworks returns the mistakes in the names of networks: those that no list has.
func (p *Policy) checkNetworks(lists networks.Lists) []ratelimit.Mistake {
	c := &checker{Policy: p}
	check := func(path string, names []string) {
		for i, name := range names {
			if m := lists.Unknown(name); m != nil {
				c.At(ratelimit.Element(path, i)).Fail(m.Message, m.Hints...)
			}
		}
	}
	for i := range p.Access {
		check(ratelimit.Element("access", i)+".networks", p.Access[i].Networks)
	}
	for list, limits := range map[string][]RateLimit{"limits": p.Limits, "refused": p.Refused} {
		for i := range limits {
			for k := range limits[i].Actions {
				if a := limits[i].Actions[k].RemoteAddress; a != nil {
					at := ratelimit.Element(ratelimit.Element(list, i)+".actions", k)
					check(at+".remote_address.networks", a.Networks)
				}
			}
		}
	}
	return c.All()
}

// checkAddress reports keys of the action that have no meaning beside each other.
func (c *checker) checkAddress(path string, a *RemoteAddress) {
	switch {
	case len(a.Networks) == 0 && a.Default != "":
		c.Key(path+".default", path+".networks").Fail("`default` without `networks`",
			"a client without an address has the value `unknown`: delete `default`, or add `networks`")
	case len(a.Networks) > 0 && a.IPv4Mask != 0:
		c.Key(path+".ipv4_mask", path+".networks").Fail("`ipv4_mask` beside `networks`", "keep one of them")
	case len(a.Networks) > 0 && a.IPv6Mask != 0:
		c.Key(path+".ipv6_mask", path+".networks").Fail("`ipv6_mask` beside `networks`", "keep one of them")
	}
}
