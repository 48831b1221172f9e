package authz

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// CheckDomain warns of limits of the policy without a rule in its domain, or whose holds no rule reads: they limit
// nothing. It reports headers of one answer with the same name, and networks of no list. Of the options, it uses Sent
// and Networks.
func (p *Policy) CheckDomain(domain *ratelimit.Domain, o ratelimit.CheckOptions) []ratelimit.Mistake {
	c := &checker{Policy: p, lists: o.Networks}
	for _, list := range []struct {
		key    string
		limits []RateLimit
	}{{"limits", p.Limits}, {"refused", p.Refused}} {
		for i := range list.limits[:min(len(list.limits), maxLimits)] {
			path, limit := ratelimit.Element(list.key, i), &list.limits[i]
			if entries := c.checkLeads(path, limit, domain); entries != nil && (list.key == "limits" || limit.Hold == nil) {
				c.checkHeld(path, limit.Hold != nil, domain.Descriptors, entries)
			}
		}
	}
	c.checkLimitHeaders(ownHeaders(domain.Descriptors, o.Sent), o.Sent)
	return append(p.checkNetworks(o.Networks), c.All()...)
}

// checkLimitHeaders reports identity headers that are also headers for the client, because an answer over HTTP has
// both. toClient are the names of those of RESPONSE_HEADERS, which are sent, and of all limits.
func (c *checker) checkLimitHeaders(toClient, sent []string) {
	identity := c.Headers.Names()
	ratelimit.Headers(c.LimitHeaders).Check(&c.Mistakes, "limit_headers", slices.Concat(sent, identity[:]))
	for i, name := range identity {
		if name != "" && slices.Contains(toClient, name) {
			c.At("headers."+identityHeaderKeys[i]).Fail(
				suggest.Quoted(name)+" is an identity header and a header for the client",
				"an answer over HTTP has both: choose another name for one of them")
		}
	}
}

// ownHeaders appends the names of own headers of limits.
func ownHeaders(nodes []ratelimit.Node, names []string) []string {
	for i := range nodes {
		for _, l := range nodes[i].AllLimits() {
			for name := range l.Headers {
				names = append(names, strings.ToLower(name))
			}
		}
		names = ownHeaders(nodes[i].Descriptors, names)
	}
	return names
}

// checkLeads follows the entries of one limit through the rules of a domain, if all entries are known. It returns them
// if they lead to a limit.
func (c *checker) checkLeads(path string, limit *RateLimit, domain *ratelimit.Domain) (entries []descriptors.Entry) {
	var grouped []string // the keys of entries that give the network of an IPv6 client by default
	for i := range limit.Actions {
		action := limit.Actions[i].compile(new(networks.Tables)) // its value is not needed
		if action.key == "" {
			return nil
		}
		entries = append(entries, descriptors.Entry{Key: action.key, Value: action.fixed})
		if a := limit.Actions[i].RemoteAddress; a != nil && a.IPv6Mask == 0 && a.Networks == nil {
			grouped = append(grouped, action.key)
		} else if a != nil && a.Networks != nil {
			c.checkNames(path, action.key, append(slices.Clone(a.Networks), a.Default), domain.Descriptors)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	c.checkAddresses(path, grouped, domain.Descriptors)
	depth, there := lead(domain.Descriptors, entries)
	if there == nil {
		return entries
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	c.At(path).Warn("this limits nothing: no rule of domain "+suggest.Quoted(domain.Name)+" is for the entries "+
		suggest.Quoted(strings.Join(keys, ", ")), missing(entries, depth, there))
	return nil
}

// checkAddresses warns of rules for one IPv6 address, and for a network with less than a /64 of them. No request has
// these if the policy gives networks.
func (c *checker) checkAddresses(path string, grouped []string, nodes []ratelimit.Node) {
	for _, n := range nodes {
		small := func(p netip.Prefix) bool { return p.Addr().Is6() && p.Bits() > defaultIPv6Mask }
		if list := c.lists[n.Network]; slices.Contains(grouped, n.Key) && slices.ContainsFunc(list, small) {
			p := list[slices.IndexFunc(list, small)]
			c.At(path).Warn("no request has a "+suggest.Quoted(n.Key)+" in "+suggest.Quoted(p.String())+" of the network at "+
				n.Position+": IPv6 addresses are grouped by /64",
				"write "+suggest.Quoted("{key: "+n.Key+", ipv6_mask: 128}")+" here")
		}
		if ip, err := netip.ParseAddr(n.Value); err == nil && ip.Is6() && slices.Contains(grouped, n.Key) {
			network := netip.PrefixFrom(ip, 64).Masked().String()
			c.At(path).Warn("no request has the "+suggest.Quoted(n.Key)+" "+suggest.Quoted(n.Value)+" of "+n.Position+
				": IPv6 addresses are grouped by /64",
				"write "+suggest.Quoted(network)+" there; or "+suggest.Quoted(n.Value+"/128")+" there and "+
					suggest.Quoted("{key: "+n.Key+", ipv6_mask: 128}")+" here")
		}
		c.checkAddresses(path, grouped, n.Descriptors)
	}
}

// checkNames warns of rules that match addresses, or a misspelled name, where an entry has one of these names of
// networks.
func (c *checker) checkNames(path, key string, names []string, nodes []ratelimit.Node) {
	for _, n := range nodes {
		meant := suggest.Closest(n.Value, names)
		_, named := c.lists[n.Value] // perhaps by another action
		switch {
		case n.Key != key:
		case n.Network != "":
			c.At(path).Warn("the rule at "+n.Position+" matches addresses, and "+suggest.Quoted(key)+
				" is the name of a network here", "write "+suggest.Quoted("value: "+n.Network)+" there")
		case meant != "" && !named && !slices.Contains(names, n.Value) && !strings.Contains(n.Value, "*"):
			c.At(path).Warn("no request has the "+suggest.Quoted(key)+" "+suggest.Quoted(n.Value)+" of "+n.Position,
				"did you mean "+suggest.Quoted(meant)+"?")
		}
		c.checkNames(path, key, names, n.Descriptors)
	}
}

// lead follows entries as far as nodes match them. An entry with an unknown value matches any value. If the entries end
// at a limit, there is nil. Otherwise depth is how many entries matched, and there are the nodes for the next entry. If
// all entries matched, there has the last node, which lacks a limit.
func lead(nodes []ratelimit.Node, entries []descriptors.Entry) (depth int, there []ratelimit.Node) {
	there = nodes
	if there == nil {
		there = []ratelimit.Node{}
	}
	for i, n := range nodes {
		if !leads(&n, entries[0]) {
			continue
		}
		d, below := 0, nodes[i:i+1]
		switch {
		case len(entries) > 1:
			d, below = lead(n.Descriptors, entries[1:])
		case len(n.AllLimits()) > 0:
			below = nil
		}
		if below == nil {
			return 0, nil
		}
		if d+1 > depth {
			depth, there = d+1, below
		}
	}
	return depth, there
}

// leads reports whether a node matches an entry, whose unknown value can be any.
func leads(n *ratelimit.Node, e descriptors.Entry) bool {
	if n.Network != "" { // none of the fixed values is an address
		return n.Key == e.Key && e.Value == ""
	}
	return descriptors.Match(n.Key, e.Key) && (n.Value == "" || e.Value == "" || descriptors.Match(n.Value, e.Value))
}

// checkHeld follows the entries of a limit as lead does. It warns of rules without `hold` for a limit with one, because
// its descriptors then match no rule, and of limits of concurrency for a limit without one.
func (c *checker) checkHeld(path string, holds bool, nodes []ratelimit.Node, entries []descriptors.Entry) {
	lacks := func(l ratelimit.Limit) bool { return l.Hold == nil && !l.Unlimited }
	concurrency := func(l ratelimit.Limit) bool { return l.Algorithm.Windowless() }
	for i := range nodes {
		n := &nodes[i]
		switch {
		case !leads(n, entries[0]):
		case len(entries) > 1:
			c.checkHeld(path, holds, n.Descriptors, entries[1:])
		case holds && slices.ContainsFunc(n.AllLimits(), lacks):
			c.At(path+".hold").Warn("the rule at "+n.Position+" has no `hold`: requests that match it pass without a limit",
				"add `hold: {ttl: 10m}` to each of its limits, or delete `hold` here")
		case !holds && slices.ContainsFunc(n.AllLimits(), concurrency):
			hint := "add `hold: {request_header: x-hold-id}`: without it, requests are not counted"
			if strings.HasPrefix(path, "refused") {
				hint = "lead to a rule with another algorithm: refused requests hold nothing, so they are not counted"
			}
			c.At(path).Warn("the rule at "+n.Position+" limits what is held at once, and this holds nothing", hint)
		}
	}
}

// missing describes what the rules lack, by the results of lead.
func missing(entries []descriptors.Entry, depth int, there []ratelimit.Node) string {
	if depth == len(entries) {
		return "the descriptor at " + there[0].Position + " is for them, but has no `rate_limit`"
	}
	e := entries[depth]
	within := "under `descriptors:`"
	if depth > 0 {
		within = "under the `descriptors:` of " + suggest.Quoted(entries[depth-1].Key)
	}
	var known []string
	for _, n := range there {
		if n.Key == e.Key {
			return fmt.Sprintf("%s no %s has the value %s", within, suggest.Quoted(e.Key), suggest.Quoted(e.Value))
		}
		known = append(known, n.Key)
	}
	if hint := suggest.DidYouMean(e.Key, known); hint != "" {
		return fmt.Sprintf("%s there is no %s: %s", within, suggest.Quoted(e.Key), hint)
	}
	return fmt.Sprintf("%s there is no %s: add it, with a `rate_limit`", within, suggest.Quoted(e.Key))
}
