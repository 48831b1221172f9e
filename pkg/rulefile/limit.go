package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// limit makes a limit of what the file says. path are the keys of the entries that lead to it. What is wrong is reported; the
// limit is then of no use.
func (b builder) limit(l limitKeys, path []string) ratelimit.Limit {
	if l.unlimited.or(false) {
		return b.unlimited(l)
	}
	spec := ratelimit.LimitSpec{
		Requests: l.requestsPerUnit.or(0), Unit: l.unit.or(descriptors.UnknownUnit), Multiplier: uint64(l.unitMultiplier.or(1)),
		Algorithm: l.algorithm.or(b.cfg.DefaultAlgorithm), Burst: l.burst.or(0),
	}
	counted, err := spec.Bucket()
	limit := ratelimit.Limit{
		Limit:        counted,
		Chosen:       spec.Algorithm,
		Name:         l.name.or(""),
		Replaces:     b.replaces(l),
		Unit:         spec.Unit,
		CountDenied:  countDenied(l.countDenied),
		OnStoreError: l.onStoreError.or(b.cfg.StoreErrorPolicy),
		HashTag:      b.hashTag(l.hashTag, path),
		OverrideMax:  b.override(l),
		Problem:      b.problemTemplate(l.problem),
	}
	b.checkPresent(l)
	b.checkName(l.name)
	switch {
	case err != nil && (l.readable() || err.Field == ratelimit.SpecBurst && l.algorithm.set == l.algorithm.mentioned):
		b.failSpec(l, spec, err)
	case err == nil && l.readable():
		limit.UnitMultiplier = uint32(spec.Multiplier) // a window that can be counted has fewer units than 2^32
		b.warnCosts(l, spec)
		limit.MaxDelay = b.maxDelay(l.maxDelay, limit)
	}
	return limit
}

// readable reports whether all keys that say how much is let through could be read.
func (l limitKeys) readable() bool {
	return l.unit.set && l.requestsPerUnit.set == l.requestsPerUnit.mentioned && l.unitMultiplier.set == l.unitMultiplier.mentioned &&
		l.burst.set == l.burst.mentioned && l.algorithm.set == l.algorithm.mentioned
}

// unlimited makes the limit of a rule that lets everything pass. It has nothing to count, so it takes no key that says how.
func (b builder) unlimited(l limitKeys) ratelimit.Limit {
	for _, k := range []struct {
		name  string
		there bool
		at    place
	}{
		{"unit", l.unit.mentioned, l.unit.key},
		{"unit_multiplier", l.unitMultiplier.mentioned, l.unitMultiplier.key},
		{"algorithm", l.algorithm.mentioned, l.algorithm.key},
		{"burst", l.burst.mentioned, l.burst.key},
		{"count_denied", l.countDenied.mentioned, l.countDenied.key},
		{"on_store_error", l.onStoreError.mentioned, l.onStoreError.key},
		{"hash_tag", l.hashTag.mentioned, l.hashTag.key},
		{"override", l.override.mentioned, l.override.key},
		{"override_max", l.overrideMax.mentioned, l.overrideMax.key},
		{"max_delay", l.maxDelay.mentioned, l.maxDelay.key},
		{"problem", l.problem.mentioned, l.problem.key},
	} {
		if k.there {
			b.fail(k.at, "should not specify "+quoted(k.name)+" when unlimited", "delete "+quoted(k.name)+", or `unlimited`")
		}
	}
	if l.requestsPerUnit.mentioned {
		b.warn(l.requestsPerUnit.key, "`requests_per_unit` has no effect when unlimited", "delete it, or `unlimited`")
	}
	b.checkName(l.name)
	return ratelimit.Limit{Name: l.name.or(""), Replaces: b.replaces(l)}
}

// checkPresent reports what a limit lacks.
func (b builder) checkPresent(l limitKeys) {
	if !l.unit.mentioned {
		b.fail(l.at, "a rate limit without `unit`", "add `unit: second` (or minute, hour, day, week, month, year)")
	}
	if !l.requestsPerUnit.mentioned {
		b.warn(l.at, "a rate limit without `requests_per_unit` denies every request", "add it; `requests_per_unit: 0` says that this is meant")
	}
}

// checkName reports names that would split Envoy's x-ratelimit-limit header, where they stand as they are, and warns of those
// that some client may not read there.
func (b builder) checkName(name given[string]) {
	splits := func(r rune) bool { return r < ' ' || r == 0x7f }
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r)
	}
	hint := "Envoy writes it into x-ratelimit-limit as it is: use letters, digits, `_`, `.` and `-`"
	switch {
	case strings.ContainsFunc(name.value, splits):
		b.fail(name.at, "limit name "+quoted(name.value)+" cannot be in a header", hint)
	case strings.ContainsFunc(name.value, func(r rune) bool { return !plain(r) }):
		b.warn(name.at, "limit name "+quoted(name.value)+" is not safe in headers", hint)
	}
}

// failSpec reports a limit that cannot be counted, at the key that makes it so.
func (b builder) failSpec(l limitKeys, spec ratelimit.LimitSpec, err *ratelimit.SpecError) {
	switch err.Field {
	case ratelimit.SpecUnit: // reported by checkPresent, or by the reader of the key
	case ratelimit.SpecMultiplier:
		b.fail(l.unitMultiplier.at, err.Message, "a smaller `unit_multiplier`, at most 77 years in all")
	case ratelimit.SpecBurst:
		if spec.Algorithm.HasBurst() {
			b.fail(l.burst.at, err.Message, "a full bucket would take too long to empty: a smaller burst, or a higher rate")
			return
		}
		hint := "add `algorithm: token_bucket` or `leaky_bucket`, or delete `burst`"
		if l.algorithm.set {
			hint = "a burst goes with `token_bucket` or `leaky_bucket`: change the algorithm, or delete `burst`"
		}
		b.fail(l.burst.key, err.Message, hint)
	case ratelimit.SpecRequests:
		hint := "for no limit at all write `unlimited: true` and nothing else"
		if spec.Algorithm == bucket.SlidingWindowLog && spec.Requests <= bucket.MaxRequests {
			hint = "sliding_window_counter counts more, at a fixed cost"
		}
		b.fail(l.requestsPerUnit.at, err.Message, hint)
	}
}

// warnCosts warns of an algorithm that was chosen for a limit of a size for which another one is better.
func (b builder) warnCosts(l limitKeys, spec ratelimit.LimitSpec) {
	switch {
	case spec.Algorithm == bucket.SlidingWindowLog && spec.Requests > bucket.WarnLogRequests:
		b.warn(l.requestsPerUnit.at, fmt.Sprintf("sliding_window_log remembers each of %d requests", spec.Requests),
			fmt.Sprintf("above %d a decision takes Redis noticeable time: sliding_window_counter has a fixed cost", bucket.WarnLogRequests))
	case l.algorithm.value == bucket.SlidingWindowCounter && bucket.SlidingWindow.For(spec.Requests) != bucket.SlidingWindowCounter && spec.Requests > 0:
		b.warn(l.algorithm.at, fmt.Sprintf("sliding_window_counter can deny a client for up to two windows at %d requests", spec.Requests),
			"delete the line: sliding_window, the default, remembers each request of a small limit and never denies for longer than one window")
	}
}

// replaces are the names of the limits that this one replaces.
func (b builder) replaces(l limitKeys) []string {
	var names []string
	for _, e := range l.replaces.value {
		switch {
		case e.name.mentioned && !e.name.set:
		case e.name.value == "":
			b.fail(e.at, "should not have an empty replaces entry", "write `- name: <the name of another limit>`")
		case e.name.value == l.name.value:
			b.fail(e.name.at, "replaces should not contain name of same descriptor: "+quoted(e.name.value), "a limit cannot replace itself: delete the element")
		default:
			names = append(names, e.name.value)
		}
	}
	return names
}

// hashTag checks that the entry whose value chooses a slot is one that leads to the rule.
func (b builder) hashTag(tag given[string], path []string) string {
	if tag.value == "" {
		return ""
	}
	var known []string
	for _, key := range path {
		if !strings.Contains(key, "*") {
			known = append(known, key)
		}
	}
	if !slices.Contains(known, tag.value) {
		want := "want the `key` of this descriptor or of one around it"
		if len(known) > 0 {
			want = "want the `key` of this descriptor or of one around it: " + oneOf(known)
		}
		b.fail(tag.at, "`hash_tag` names no entry on the way to this limit: "+quoted(tag.value), didYouMean(tag.value, known), want)
	}
	return tag.value
}

func countDenied(g given[bool]) ratelimit.CountDenied {
	switch {
	case !g.set:
		return ratelimit.CountExplicit
	case g.value:
		return ratelimit.CountAll
	}
	return ratelimit.CountNone
}
