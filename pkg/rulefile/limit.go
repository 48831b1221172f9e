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
	limit := ratelimit.Limit{
		Limit: bucket.Limit{
			Algorithm: l.algorithm.or(b.cfg.DefaultAlgorithm),
			Requests:  l.requestsPerUnit.or(0),
		},
		Name:           l.name.or(""),
		Replaces:       b.replaces(l),
		Unit:           l.unit.or(descriptors.UnknownUnit),
		UnitMultiplier: 1,
		CountDenied:    countDenied(l.countDenied),
		OnStoreError:   l.onStoreError.or(b.cfg.StoreErrorPolicy),
		HashTag:        b.hashTag(l.hashTag, path),
		OverrideMax:    b.override(l),
		Problem:        b.problemTemplate(l.problem),
	}
	if limit.Algorithm.HasBurst() {
		limit.Burst = l.burst.or(limit.Requests)
	}
	b.checkPresent(l)
	b.checkName(l.name)
	if l.algorithm.set || !l.algorithm.mentioned {
		b.checkBurst(l, limit.Algorithm)
	}
	if l.readable() && b.window(l, &limit) && b.checkExact(l, limit.Limit) {
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

// checkBurst reports a burst that the algorithm would not look at.
func (b builder) checkBurst(l limitKeys, a bucket.Algorithm) {
	if !l.burst.mentioned || a.HasBurst() {
		return
	}
	hint := "add `algorithm: token_bucket` or `leaky_bucket`, or delete `burst`"
	if l.algorithm.set {
		hint = "a burst goes with `token_bucket` or `leaky_bucket`: change the algorithm, or delete `burst`"
	}
	b.fail(l.burst.key, fmt.Sprintf("`burst` has no meaning for %s", a), hint)
}

// window sets the window of a limit, and reports whether it can be counted.
func (b builder) window(l limitKeys, limit *ratelimit.Limit) bool {
	times := l.unitMultiplier.or(1)
	if most := bucket.MaxWindow / limit.Unit.Micros(); times > most {
		b.fail(l.unitMultiplier.at, fmt.Sprintf("a window of %d %ss is too long to be counted exactly", times, limit.Unit),
			fmt.Sprintf("at most `unit_multiplier: %d` with `unit: %s`", most, limit.Unit))
		return false
	}
	if times > 1<<32-1 {
		b.fail(l.unitMultiplier.at, fmt.Sprintf("`unit_multiplier` cannot be %d", times), "Envoy is told it as 32 bits: at most `4294967295`; use a larger unit")
		return false
	}
	limit.UnitMultiplier, limit.Window = uint32(times), limit.Unit.Micros()*times
	return true
}

// checkExact reports a limit that the stores cannot count exactly, at the key that makes it so; otherwise it returns true.
func (b builder) checkExact(l limitKeys, limit bucket.Limit) bool {
	rate := bucket.Limit{Algorithm: limit.Algorithm, Requests: limit.Requests, Window: limit.Window, Burst: 1}
	if err := rate.Check(); err != nil {
		hint := "for no limit at all write `unlimited: true` and nothing else"
		if limit.Algorithm == bucket.SlidingWindowLog && limit.Requests <= bucket.MaxRequests {
			hint = "sliding_window_counter counts more, at a fixed cost"
		}
		b.fail(l.requestsPerUnit.at, err.Error(), hint)
		return false
	}
	if err := limit.Check(); err != nil {
		if l.burst.set {
			b.fail(l.burst.at, err.Error(), "a full bucket would take too long to empty: a smaller burst, or a higher rate")
			return false
		}
		b.fail(l.requestsPerUnit.at, err.Error(), "without `burst` it is `requests_per_unit`: set a smaller one")
		return false
	}
	if limit.Algorithm == bucket.SlidingWindowLog && limit.Requests > bucket.WarnLogRequests {
		b.warn(l.requestsPerUnit.at, fmt.Sprintf("sliding_window_log remembers each of %d requests", limit.Requests),
			fmt.Sprintf("above %d a decision takes Redis noticeable time: sliding_window_counter has a fixed cost", bucket.WarnLogRequests))
	}
	return true
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
