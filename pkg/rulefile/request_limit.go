package rulefile

import (
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// maxRequestLimits is how many descriptors a request can have: all of them are decided together, in one call of the store.
const maxRequestLimits = 64

// requestLimits makes what each request is limited by.
func (b builder) requestLimits(list []requestLimitKeys) []authz.RateLimit {
	var limits []authz.RateLimit
	for i, l := range list {
		if i == maxRequestLimits {
			b.fail(l.at, fmt.Sprintf("more than %d limits", maxRequestLimits), "each is decided for every request: join some")
			break
		}
		limit := authz.RateLimit{Hits: b.hits(l.hits.value), Position: b.position(l.at)}
		switch {
		case !l.actions.mentioned && !b.strange[l.at]:
			b.fail(l.at, "a limit without `actions`", "add `actions: [{credential: {field: owner}}]`: each action gives one entry of a descriptor")
		case l.actions.set && len(l.actions.value) == 0:
			b.fail(l.actions.key, "`actions` is empty", "add one, for example `- credential: {field: owner}`: each gives one entry of a descriptor")
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
	report  *report
}

// limiting are the elements whose entries are known. An entry whose value the request gives has the value "".
func (b builder) limiting(list []requestLimitKeys, limits []authz.RateLimit) []limiting {
	var all []limiting
	for i, limit := range limits {
		var entries []descriptors.Entry
		for _, a := range limit.Actions {
			if e := entryOf(a); e.Key != "" {
				entries = append(entries, e)
			}
		}
		if len(entries) > 0 && len(entries) == len(limit.Actions) && len(limit.Actions) == len(list[i].actions.value) {
			all = append(all, limiting{at: list[i].at, entries: entries, report: b.report})
		}
	}
	return all
}

// checkLeads warns of limits of an authz section that no rule of the domain is for: they would let everything pass.
func (s *domainSet) checkLeads() {
	for _, d := range s.order {
		for _, l := range d.limiting {
			if leads(d.nodes, l.entries) {
				continue
			}
			var keys, known []string
			for _, e := range l.entries {
				keys = append(keys, e.Key)
			}
			for _, n := range d.nodes {
				known = append(known, n.Key)
			}
			hint := didYouMean(keys[0], known)
			if len(known) > 0 && hint == "" {
				hint = "the keys that begin its descriptors are " + oneOfKeys(firstOnce(known))
			}
			l.report.warn(l.at, "this limits nothing: no rule of domain "+quoted(d.name)+" is for the entries "+quoted(strings.Join(keys, ", ")),
				hint, "under `descriptors:`, one rule inside the other has these keys, and the last a `rate_limit`")
		}
	}
}

// leads reports whether entries may end at a node with a limit. One whose value is not known may have any.
func leads(nodes []ratelimit.Node, entries []descriptors.Entry) bool {
	for _, n := range nodes {
		e := entries[0]
		if !descriptors.Match(n.Key, e.Key) || n.Value != "" && e.Value != "" && !descriptors.Match(n.Value, e.Value) {
			continue
		}
		if len(entries) == 1 && len(n.Limits) > 0 || len(entries) > 1 && leads(n.Descriptors, entries[1:]) {
			return true
		}
	}
	return false
}

// firstOnce are the first few of some words, each once.
func firstOnce(words []string) []string {
	const most = 8
	var list []string
	seen := map[string]bool{}
	for _, w := range words {
		if !seen[w] && w != "" && len(list) < most {
			seen[w] = true
			list = append(list, w)
		}
	}
	return list
}
