package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// holds are the descriptors of a connection manager that end with an entry for a hold. A rule with `hold` reads each.
type holds []hold

type hold struct {
	limit, id value    // the element of `rate_limits`, and the action that makes the id.
	domains   []string // that the descriptor can have.
	keys      []string // of the other entries.
	of        string   // the other entries, and the header of the id: equal for a reserve and its settlement.
	header    string   // that has the id, "" if none has.
	reserve   bool
	// done means that the settlement is made at the end of the stream. sure means that it has a cost in any case.
	done, sure bool
	ttl        time.Duration
}

// holdOf checks the last of the entries that the actions of a limit make. It reports whether it is one for a hold.
func (c *check) holdOf(limit value, entries []ratelimit.PossibleEntry, domains []string) bool {
	at := slices.IndexFunc(entries, func(e ratelimit.PossibleEntry) bool { return descriptors.OfHold(e.Key) })
	actions := limit.get("actions").list()
	if at < 0 {
		if _, concurrency := c.terms(entries, domains); concurrency {
			c.find("hold-missing", limit.get("actions"),
				"the descriptor holds nothing, and its limit has the algorithm concurrency")
		}
		return false
	}
	terms, _ := c.terms(entries[:at], domains)
	switch {
	case at < len(entries)-1:
		c.find("hold-unread", actions[at], suggest.Quoted(entries[at].Key)+" is not the last entry of the descriptor")
		return true
	case terms == nil:
		c.find("hold-unread", actions[at], "no rule with `hold` matches the entries before "+suggest.Quoted(entries[at].Key))
		return true
	}
	h := hold{limit: limit, id: actions[at], domains: domains, ttl: terms.TTL}
	h.reserve = entries[at].Key == descriptors.HoldReserve
	for _, e := range entries[:at] {
		h.keys = append(h.keys, e.Key)
	}
	h.header = strings.ToLower(h.id.get("request_headers").get("header_name").Text())
	h.of = fmt.Sprint(domains, entries[:at], h.header)
	h.done = limit.get("apply_on_stream_done").hasText("true")
	h.sure = !limit.get("hits_addend").get("format").exists()
	c.holds = append(c.holds, h)
	return true
}

// terms returns the terms of the holds of a limit that descriptors of these entries can reach, nil for none.
func (c *check) terms(
	entries []ratelimit.PossibleEntry, domains []string,
) (terms *ratelimit.HoldTerms, concurrency bool) {
	for _, domain := range domains {
		if terms, concurrency = c.Limits.Holds(domain, entries); terms != nil {
			break
		}
	}
	return terms, concurrency
}

// checkHolds compares the reserves of a connection manager, and those of policies, with its settlements.
func (c *check) checkHolds(manager value, filters, tables []value) {
	made := madeIDs(manager)
	chosen := func(at value, header string) {
		if !slices.Contains(made, header) {
			c.find("hold-id", at, "a client may choose the id of a hold: Envoy makes no new one for each request here")
		}
	}
	for _, h := range c.holds {
		settled := func(is func(hold) bool) bool {
			return slices.ContainsFunc(c.holds, func(s hold) bool { return !s.reserve && s.done && s.of == h.of && is(s) })
		}
		switch {
		case !h.reserve:
			if !settled(func(s hold) bool { return s.sure }) {
				c.find("hold-unreleased", h.id, "no settlement of this hold comes if its response has no cost")
			}
			if !slices.ContainsFunc(c.holds, func(r hold) bool { return r.reserve && r.of == h.of }) { // a policy reserves
				c.holdTime(manager, tables, h)
			}
			continue
		case !settled(func(hold) bool { return true }):
			c.find("hold-unsettled", h.id, "nothing settles this hold at the end of the stream")
		}
		chosen(h.id, h.header)
		c.holdTime(manager, tables, h)
	}
	for _, filter := range filters { // ext_authz
		for _, domain := range slices.Sorted(maps.Keys(c.Policies)) {
			for _, limit := range c.Policies[domain].Limits {
				if limit.Hold != nil {
					c.policyHold(filter, domain, &limit)
					chosen(filter, strings.ToLower(*limit.Hold.RequestHeader))
				}
			}
		}
	}
	c.holds = nil
}

// policyHold looks for the settlement of what a limit of a policy reserves.
func (c *check) policyHold(filter value, domain string, limit *authz.RateLimit) {
	header, keys := strings.ToLower(*limit.Hold.RequestHeader), limit.Keys()
	settles := func(s hold) bool {
		return !s.reserve && s.done && s.header == header && slices.Contains(s.domains, domain) && slices.Equal(s.keys, keys)
	}
	if !slices.ContainsFunc(c.holds, settles) {
		c.find("hold-unsettled", filter, fmt.Sprintf(
			"nothing settles the holds of the policy %s with the entries %s, whose id is in %s",
			suggest.Quoted(domain), suggest.Quoted(strings.Join(keys, ", ")), suggest.Quoted(header)))
	}
}

// madeIDs returns the headers that hold a new id for each request: header_mutation sets them in front of all filters
// that ask the service.
func madeIDs(manager value) (headers []string) {
	for _, filter := range manager.get("http_filters").list() {
		if len(filter.ofType("ExtAuthz"))+len(filter.ofType("RateLimit")) > 0 {
			break
		}
		for _, mutation := range filter.ofType("HeaderMutation") {
			mutation.get("mutations").get("request_mutations").walk(func(v value) {
				header := v.get("append").get("header")
				action := v.get("append").get("append_action").Text()
				if header.get("value").hasText("%UNIQUE_ID%") && (action == "OVERWRITE_IF_EXISTS_OR_ADD" || action == "2") {
					headers = append(headers, strings.ToLower(header.get("key").Text()))
				}
			})
		}
	}
	return headers
}

// holdTime compares the ttl of a hold with the longest request of each route that reserves it.
func (c *check) holdTime(manager value, tables []value, h hold) {
	inside := func(from value) bool {
		return from.all(func(v value) bool { return v.Value == h.limit.Value }) != nil
	}
	for _, table := range tables {
		anywhere := !inside(table) // the filter has the limits
		for _, host := range table.get("virtual_hosts").list() {
			routes := host.get("routes").list()
			all := anywhere || inside(host) && !slices.ContainsFunc(routes, inside)
			for _, route := range routes {
				if !all && !inside(route) {
					continue
				}
				longest := longestRequest(manager, route.get("route"))
				if longest <= h.ttl {
					continue
				}
				text := "the requests of a route have no longest time"
				if longest < math.MaxInt64 {
					text = fmt.Sprintf("a request of a route can take %s", longest)
				}
				c.find("hold-ttl", cmp.Or(route.get("route").get("timeout"), route), fmt.Sprintf(
					"%s, and the hold that it reserves ends after %s", text, h.ttl))
				return
			}
		}
	}
}

// longestRequest returns how long Envoy lets a request of a route take.
func longestRequest(manager, route value) time.Duration {
	longest := time.Duration(math.MaxInt64)
	limit := func(field value, byDefault time.Duration) {
		d, err := time.ParseDuration(field.Text())
		if err != nil {
			d = byDefault
		}
		if d > 0 {
			longest = min(longest, d)
		}
	}
	const usual = 15 * time.Second // of Envoy
	limit(route.get("timeout"), usual)
	limit(cmp.Or(route.get("max_stream_duration").get("max_stream_duration"),
		manager.get("common_http_protocol_options").get("max_stream_duration")), 0)
	return longest
}
