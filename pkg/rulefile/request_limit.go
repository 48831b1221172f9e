package rulefile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// maxRequestLimits is how many descriptors a request can have: all of them are decided together, in one call of the store.
const maxRequestLimits = 64

// requestLimits makes what requests are limited by. example is an action of such a limit, for messages.
func (b builder) requestLimits(list []requestLimitKeys, example string) []authz.RateLimit {
	var limits []authz.RateLimit
	for i, l := range list {
		if i == maxRequestLimits {
			b.fail(l.at, fmt.Sprintf("more than %d limits", maxRequestLimits), "each is decided for every request: join some")
			break
		}
		limit := authz.RateLimit{Hits: b.hits(l.hits.value), Position: b.position(l.at)}
		switch {
		case !l.actions.mentioned && !b.strange[l.at]:
			b.fail(l.at, "a limit without `actions`",
				"add "+quoted("actions: [{"+example+"}]")+": each action gives one entry of a descriptor")
		case l.actions.set && len(l.actions.value) == 0:
			b.fail(l.actions.key, "`actions` is empty",
				"add one, for example "+quoted("- "+example)+": each gives one entry of a descriptor")
		}
		for _, a := range l.actions.value {
			limit.Actions = append(limit.Actions, b.action(a))
		}
		limits = append(limits, limit)
	}
	return limits
}

// hits makes the cost of a request.
func (b builder) hits(h hitsKeys) authz.HitsAddend {
	b.atMostOne(chosen("header", h.header), chosen("extension", h.extension))
	if h.extension.set && h.extension.value == "" {
		b.fail(h.extension.at, "the name of the context extension is empty", "write the key that `context_extensions` of the route have")
	}
	return authz.HitsAddend{Number: uint64(h.number.value), Header: b.headerName(h.header), Extension: h.extension.value}
}

// limiting is an element of `limits:` in `authz:`, with what is needed to look for the rules that it leads to.
type limiting struct {
	at      place
	entries []descriptors.Entry
	// networks are the keys of entries that give the network of an IPv6 client by default.
	networks []string
	report   *report
}

// limiting are the elements whose entries are known. An entry whose value the request gives has the value "".
func (b builder) limiting(list []requestLimitKeys, limits []authz.RateLimit) []limiting {
	var all []limiting
	for i, limit := range limits {
		var entries []descriptors.Entry
		var networks []string
		for _, a := range limit.Actions {
			if e := entryOf(a); e.Key != "" {
				entries = append(entries, e)
			}
			if a.RemoteAddress != nil && a.RemoteAddress.IPv6Mask == 0 {
				networks = append(networks, a.RemoteAddress.Key)
			}
		}
		if len(entries) > 0 && len(entries) == len(limit.Actions) && len(limit.Actions) == len(list[i].actions.value) {
			all = append(all, limiting{at: list[i].at, entries: entries, networks: networks, report: b.report})
		}
	}
	return all
}

// checkLeads warns of limits of an authz section that no rule of the domain is for: they would let everything pass.
func (s *domainSet) checkLeads() {
	for _, d := range s.order {
		for _, l := range d.limiting {
			l.checkAddresses(d.rules.Descriptors)
			depth, there := lead(d.rules.Descriptors, l.entries)
			if there == nil {
				continue
			}
			var keys []string
			for _, e := range l.entries {
				keys = append(keys, e.Key)
			}
			l.report.warn(l.at, "this limits nothing: no rule of domain "+quoted(d.name)+" is for the entries "+quoted(strings.Join(keys, ", ")),
				missing(l.entries, depth, there))
		}
	}
}

// checkAddresses warns of rules for one IPv6 address, which no request has where networks are given.
func (l limiting) checkAddresses(nodes []ratelimit.Node) {
	for _, n := range nodes {
		if ip, err := netip.ParseAddr(n.Value); err == nil && ip.Is6() && slices.Contains(l.networks, n.Key) {
			network := netip.PrefixFrom(ip, 64).Masked().String()
			l.report.warn(l.at,
				"no request has the "+quoted(n.Key)+" "+quoted(n.Value)+" of "+n.Position+": IPv6 addresses are grouped by /64",
				"write "+quoted(network)+" there; or "+quoted(n.Value+"/128")+" there and "+
					quoted("{key: "+n.Key+", ipv6_mask: 128}")+" here")
		}
		l.checkAddresses(n.Descriptors)
	}
}

// lead follows entries as far as nodes match them; one whose value is not known may have any. It returns how many matched and the
// nodes that the next one was compared with, or the last one's when that has no limit; nil when the entries end at a limit.
func lead(nodes []ratelimit.Node, entries []descriptors.Entry) (depth int, there []ratelimit.Node) {
	there = nodes
	if there == nil {
		there = []ratelimit.Node{}
	}
	for i, n := range nodes {
		e := entries[0]
		if !descriptors.Match(n.Key, e.Key) || n.Value != "" && e.Value != "" && !descriptors.Match(n.Value, e.Value) {
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

// missing says what the rules lack, of which lead has found nodes at a depth.
func missing(entries []descriptors.Entry, depth int, there []ratelimit.Node) string {
	if depth == len(entries) {
		return "the descriptor at " + there[0].Position + " is for them, but has no `rate_limit`"
	}
	e := entries[depth]
	within := "under `descriptors:`"
	if depth > 0 {
		within = "under the `descriptors:` of " + quoted(entries[depth-1].Key)
	}
	var known []string
	for _, n := range there {
		if n.Key == e.Key {
			return fmt.Sprintf("%s no %s has the value %s", within, quoted(e.Key), quoted(e.Value))
		}
		known = append(known, n.Key)
	}
	if hint := didYouMean(e.Key, known); hint != "" {
		return fmt.Sprintf("%s there is no %s: %s", within, quoted(e.Key), hint)
	}
	return fmt.Sprintf("%s there is no %s: add it, with a `rate_limit`", within, quoted(e.Key))
}
