package ratelimit

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/internal/zonedata"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// specPaths are the keys of a limit that determine how it is counted.
func specPaths(at string) []string {
	return []string{
		at + ".unit", at + ".unit_multiplier", at + ".requests_per_unit", at + ".algorithm", at + ".calendar", at + ".burst",
	}
}

// checkLimit reports mistakes in a limit. way has the patterns of the entries that lead to it.
func (c *checker) checkLimit(l *Limit, at string, way []descriptors.Pattern) {
	if l.Unit == descriptors.UnknownUnit && !l.Algorithm.Windowless() {
		c.Key(at, at+".unit").Fail("a rate limit without `unit`",
			"add `unit: second` (or minute, hour, day, week, month, year)")
	}
	if l.Requests == nil {
		c.Key(at, at+".requests_per_unit").Warn("a rate limit without `requests_per_unit` denies every request",
			"add it, or write `requests_per_unit: 0` to deny all requests")
	}
	if l.OnStoreError != 0 && !l.OnStoreError.known() {
		c.At(at+".on_store_error").Fail(fmt.Sprintf("`on_store_error` cannot be `%d`", l.OnStoreError),
			"want "+suggest.OneOf(l.OnStoreError.Words()))
	}
	c.checkName(l.Name, at+".name")
	c.checkHashTag(l.HashTag, at+".hash_tag", way)
	c.checkProblem(l.Problem, at+".problem")
	if l.Status != 0 && (l.Status < 400 || l.Status > 599) {
		c.At(at+".status").Fail(fmt.Sprintf("`status` cannot be `%d`", l.Status),
			"want a status from 400 to 599, such as 403")
	}
	l.Headers.Check(&c.Mistakes, at+".headers", c.sent)
	c.checkHold(l, at)
	c.checkAtLeast(l.Multiplier, 1, at+".unit_multiplier")
	c.checkAtLeast(l.Burst, 1, at+".burst")
	if l.Requests != nil {
		c.checkAtLeast(*l.Requests, 0, at+".requests_per_unit")
	}
	if l.Multiplier < 0 || l.Burst < 0 || l.Requests != nil && *l.Requests < 0 {
		return
	}
	if l.Calendar != nil && *l.Calendar == "" {
		c.At(at+".calendar").Fail("`calendar` is empty", zoneWanted)
		return
	}
	spec := l.spec(c.defaults)
	if c.defaults.months && spec.Unit == descriptors.Month && spec.Calendar == "" {
		c.At(at+".unit", specPaths(at)...).Fail(
			"with USE_CALENDAR_MONTH_RATE_LIMIT, a month limit is one month of fixed_window",
			"delete `algorithm` and `unit_multiplier`, count days instead of months, or unset USE_CALENDAR_MONTH_RATE_LIMIT")
		return
	}
	limit, err := spec.ofRule()
	if err != nil {
		c.failSpec(l, spec, at, err)
		return
	}
	c.warnCosts(l, spec, at)
	if l.Hold != nil { // checkHold reports the keys that follow
		return
	}
	c.checkOverride(l.Override, spec, at)
	c.checkMaxDelay(l.MaxDelay, limit, at)
	c.checkLease(l, limit, at)
}

// checkAtLeast reports a negative number. 0 means that the source does not set it.
func (c *checker) checkAtLeast(n, least int64, at string) {
	if n < 0 {
		c.At(at).Fail(fmt.Sprintf("%s cannot be `%d`", suggest.Quoted(at[strings.LastIndexByte(at, '.')+1:]), n),
			fmt.Sprintf("want a whole number, %d or more", least))
	}
}

// checkUnlimited reports keys that have no meaning beside unlimited: an unlimited limit counts nothing.
func (c *checker) checkUnlimited(l *Limit, at string) {
	v := reflect.ValueOf(l).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		switch name := field.Tag.Get("yaml"); {
		case v.FieldByIndex(field.Index).IsZero():
		case name == "unlimited", name == "name", name == "replaces", name == "requests_per_unit", name == ",position":
		default:
			c.Key(at+"."+name, at+".unlimited").Fail("should not specify "+suggest.Quoted(name)+" when unlimited",
				"delete "+suggest.Quoted(name)+", or `unlimited`")
		}
	}
	if l.Requests != nil {
		c.Key(at+".requests_per_unit").Warn("`requests_per_unit` has no effect when unlimited", "delete it, or `unlimited`")
	}
	c.checkName(l.Name, at+".name")
}

// checkName reports names that would split Envoy's x-ratelimit-limit header, which holds names without quotes. It
// warns of names that some clients may not read there.
func (c *checker) checkName(name, at string) {
	const hint = "Envoy writes it into x-ratelimit-limit as it is: use letters, digits, `_`, `.` and `-`"
	splits := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case strings.ContainsFunc(name, splits), !utf8.ValidString(name):
		c.At(at).Fail("limit name "+suggest.Quoted(name)+" cannot be in a header", hint)
	case strings.ContainsFunc(name, func(r rune) bool { return !plainInHeaders(r) }):
		c.At(at).Warn("limit name "+suggest.Quoted(name)+" is not safe in headers", hint)
	}
}

const zoneWanted = "write the name of an IANA time zone such as `Europe/Berlin`, or `UTC`"

// failSpec reports a limit that cannot be counted, at the key that is the cause.
func (c *checker) failSpec(l *Limit, spec LimitSpec, at string, err *SpecError) {
	where, all := at+"."+err.Field, specPaths(at)
	switch err.Field {
	case "unit":
		if spec.Unit != descriptors.UnknownUnit { // a missing unit was already reported
			c.At(where).Fail(err.Message)
		}
	case "algorithm":
		c.At(where).Fail(err.Message)
	case "calendar":
		c.failCalendar(spec, where, all, err)
	case "unit_multiplier":
		c.At(where, all...).Fail(err.Message, "a smaller `unit_multiplier`, at most 77 years in all")
	case "burst":
		switch {
		case spec.Algorithm.HasBurst():
			c.At(where, all...).Fail(err.Message,
				"a full bucket would take too long to empty: a smaller burst, or a higher rate")
		case l.Algorithm != 0 || spec.Calendar != "":
			c.Key(where, at+".algorithm").Fail(err.Message,
				"a burst goes with `token_bucket` or `leaky_bucket`: change the algorithm, or delete `burst`")
		default:
			c.Key(where, at+".algorithm").Fail(err.Message, "add `algorithm: token_bucket` or `leaky_bucket`, or delete `burst`")
		}
	case "requests_per_unit":
		hint := "for no limit at all write `unlimited: true` and nothing else"
		switch {
		case spec.Requests > bucket.MaxWindowRequests, spec.Algorithm.Windowless():
		case spec.Requests > bucket.MaxRequests:
			hint = fmt.Sprintf("`algorithm: fixed_window` counts up to %d", bucket.FixedWindow.Most())
		case spec.Algorithm == bucket.SlidingWindowLog:
			hint = "sliding_window_counter counts more, at a fixed cost"
		}
		c.At(where, all...).Fail(err.Message, hint)
	}
}

// failCalendar reports a calendar that has no meaning beside the rest of the limit, and an unknown time zone.
func (c *checker) failCalendar(spec LimitSpec, where string, all []string, err *SpecError) {
	switch {
	case spec.Calendar == "Local":
		c.At(where).Fail("`calendar` cannot be `Local`",
			"the zone of a machine may differ from that of the next one: "+zoneWanted)
	case spec.Algorithm != bucket.FixedWindow:
		c.Key(where, all...).Fail(err.Message, "only `fixed_window` has a calendar: delete `algorithm`, or `calendar`")
	case spec.Multiplier > 1 || !slices.Contains(bucket.CalendarUnits, spec.Unit.String()):
		c.Key(where, all...).Fail(err.Message,
			"want one "+suggest.OneOf(bucket.CalendarUnits)+": change `unit` or `unit_multiplier`, or delete `calendar`")
	default:
		meant := ""
		if c.errors < maxHinted {
			meant = suggest.DidYouMean(spec.Calendar, zonedata.Zones())
		}
		c.At(where).Fail(err.Message, meant, zoneWanted)
	}
}

// warnCosts warns of an algorithm if another one is better for a limit of this size.
func (c *checker) warnCosts(l *Limit, spec LimitSpec, at string) {
	better := bucket.SlidingWindow.For(spec.Requests)
	switch {
	case spec.Algorithm == bucket.SlidingWindowLog && spec.Requests > bucket.WarnLogRequests:
		c.At(at+".requests_per_unit", specPaths(at)...).Warn(
			fmt.Sprintf("sliding_window_log remembers each of %d requests", spec.Requests),
			fmt.Sprintf("above %d a decision takes Redis noticeable time: sliding_window_counter has a fixed cost",
				bucket.WarnLogRequests))
	case l.Algorithm == bucket.SlidingWindowCounter && better != bucket.SlidingWindowCounter && spec.Requests > 0:
		c.At(at+".algorithm", specPaths(at)...).Warn(
			fmt.Sprintf("sliding_window_counter can deny a client for up to %.3g windows at %s", 1+1/float64(spec.Requests),
				suggest.Counted(int(spec.Requests), "request")),
			"delete the line: sliding_window, the default, remembers each request of a small limit "+
				"and never denies for longer than one window")
	}
}

// checkHashTag reports a tag that is not the key of an entry on the way to the limit.
func (c *checker) checkHashTag(tag, at string, way []descriptors.Pattern) {
	if tag == "" {
		return
	}
	var known []string
	for _, p := range way {
		if !strings.Contains(p.Key, "*") {
			known = append(known, p.Key)
		}
	}
	if slices.Contains(known, tag) {
		return
	}
	want := "want the `key` of this descriptor or of one around it"
	if len(known) > 0 {
		want += ": " + suggest.OneOf(known)
	}
	c.At(at).Fail("`hash_tag` names no entry on the way to this limit: "+suggest.Quoted(tag),
		suggest.DidYouMean(tag, known), want)
}

// checkOverride reports an override that cannot be counted. The limit that it replaces can be: spec.
func (c *checker) checkOverride(o *Override, spec LimitSpec, limitAt string) {
	if o == nil {
		return
	}
	at := limitAt + ".override"
	c.checkName(o.Name, at+".name")
	spec.Requests, spec.Burst = o.Max, o.Burst
	if spec.Algorithm = cmp.Or(o.Algorithm, spec.Algorithm); spec.Algorithm != bucket.FixedWindow {
		spec.Calendar = "" // that of another algorithm is not used
	}
	_, err := spec.Bucket()
	switch {
	case o.Max < 1:
		c.At(at+".max").Lacking().Fail("`override` without `max`", "add `max: N`: "+
			"the highest rate of a limit that a request or credential brings, in hits in the window of this limit")
	case o.Burst < 0:
		c.checkAtLeast(o.Burst, 1, at+".burst")
	case o.Burst > 0 && !spec.Algorithm.HasBurst():
		c.At(at+".burst", at+".algorithm", limitAt+".algorithm").Fail("`burst` has no meaning for "+spec.Algorithm.String(),
			"add `algorithm: token_bucket` or `leaky_bucket` to `override`, or delete `burst`")
	case o.Burst > 0 && err != nil && err.Field == "burst":
		c.At(at+".burst", at+".max").Fail(err.Message, "want a smaller burst, or a larger `max`")
	case err != nil && err.Field == "algorithm":
		c.At(at + ".algorithm").Fail(err.Message)
	case err != nil && (o.Max > bucket.MaxRequests || o.Algorithm != 0):
		another := "another algorithm"
		if o.Max > bucket.MaxRequests {
			another = "`algorithm: fixed_window`"
		}
		c.At(at+".max", at+".algorithm").Fail(err.Message, "want a smaller `max`, or "+another)
	}
}

// checkMaxDelay reports a time for which a limit cannot hold requests. The limit passes bucket.Limit.Check.
func (c *checker) checkMaxDelay(delay time.Duration, limit bucket.Limit, at string) {
	also := specPaths(at)
	onValue, onKey := c.At(at+".max_delay", also...), c.Key(at+".max_delay", also...)
	switch {
	case delay == 0:
		return
	case delay < 0:
		onValue.Fail("`max_delay` cannot be "+suggest.Quoted(delay.String()), "want 0 or more")
		return
	case !limit.Algorithm.HasQueue():
		onKey.Fail(fmt.Sprintf("`max_delay` has no meaning for %s", limit.Algorithm),
			"only a `token_bucket` or a `leaky_bucket` holds requests: change the algorithm, or delete `max_delay`")
		return
	case limit.Requests == 0:
		onKey.Fail("`max_delay` beside `requests_per_unit: 0`", "no request ever passes: delete `max_delay`")
		return
	case delay > maxQueueTime:
		onValue.Fail("`max_delay` cannot be "+suggest.Quoted(delay.String()),
			"want at most `1m`: Envoy and the client wait all that time")
		return
	}
	units, exact := queueTime(limit, delay)
	held := suggest.Counted(int(units), "request")
	switch {
	case units == 0:
		one := inWords(unitTime(limit, 1))
		onValue.Fail(fmt.Sprintf("`max_delay` is shorter than %s, the time of one request at this rate", one),
			"no request could be held: want at least "+suggest.Quoted(one)+", or no `max_delay`")
		return
	case exact != delay.Microseconds():
		onValue.Warn(fmt.Sprintf("`max_delay` is rounded down to %s", inWords(exact)),
			"that is the time of "+held+" at this rate")
	}
	switch all := withQueue(limit, units); {
	case all.Check() != nil:
		onValue.Fail(fmt.Sprintf("%s cannot wait beside a burst of %d and be counted exactly", held, limit.Burst),
			"write a smaller `burst`, or a shorter `max_delay`")
	case all.Burst <= units:
		onKey.Warn(fmt.Sprintf("the burst of %d denies requests before they wait that long", limit.Burst),
			fmt.Sprintf("write `burst: %d` to hold as many as pass in %s", units+1, inWords(exact)))
	}
}

func inWords(micros int64) string { return (time.Duration(micros) * time.Microsecond).String() }

// checkProblem reports an empty template, and one with unknown placeholders.
func (c *checker) checkProblem(p *ProblemDetail, at string) {
	if p == nil {
		return
	}
	if *p == (ProblemDetail{}) {
		c.Key(at).Fail("`problem` says nothing", "add `type`, `title` or `detail`, or delete it")
	}
	if _, err := url.Parse(p.Type); err != nil {
		c.At(at+".type").Fail("`type` is no URI: "+suggest.Quoted(p.Type),
			"want one as RFC 9457 has it, such as https://shop.example/problems/too-many")
	}
	for _, text := range []struct{ name, said string }{{"title", p.Title}, {"detail", p.Detail}} {
		checkPlaceholders(c.At(at+"."+text.name), text.said, []string{"retry_after", "limit", "window", "policy"},
			"want {retry_after}, {limit}, {window} or {policy}")
	}
}
