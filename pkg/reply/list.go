package reply

import (
	"slices"
	"strconv"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Header is one header of a response.
type Header struct{ Name, Value string }

// List is the headers of an answer. Reset keeps its memory, so that an answer allocates none. The zero value is empty.
type List struct {
	// Headers are valid until Reset.
	Headers []Header

	values []byte // the values of Headers are parts of it
}

// Reset empties the list.
func (l *List) Reset() {
	l.Headers, l.values = texts.Clear(l.Headers), texts.Reset(l.values)
}

// add adds a header whose value is what was appended to l.values since it had a length.
func (l *List) add(name string, length int) {
	l.Headers = append(l.Headers, Header{name, texts.View(l.values[length:])})
}

func (l *List) addNumber(name string, v int64) {
	length := len(l.values)
	l.values = strconv.AppendInt(l.values, v, 10)
	l.add(name, length)
}

// usualLimits is the number of limits up to which an answer allocates nothing.
const usualLimits = 16

// appendShown appends the limits that a client sees, the tightest first.
func appendShown(list []*ratelimit.Applied, res *ratelimit.Result) []*ratelimit.Applied {
	for i := range res.Limits {
		if a := &res.Limits[i]; !a.Shadow && !a.Limit.Hidden {
			list = append(list, &res.Limits[i])
		}
	}
	if len(list) > 1 {
		slices.SortStableFunc(list, ratelimit.Compare)
	}
	return list
}

// addDraft adds one item for each policy. If a policy has several buckets, the item is for the tightest one.
func (l *List) addDraft(h *Headers, shown []*ratelimit.Applied) {
	length := len(l.values)
	for i, a := range shown {
		if first(shown, i) {
			l.separate(i)
			l.values = append(append(append(l.values, '"'), a.Limit.Policy...), `";r=`...)
			l.values = strconv.AppendInt(l.values, a.Decision.Remaining, 10)
			if next := ratelimit.Seconds(a.Decision.NextIn); next != 0 { // 0 means "now"
				l.values = strconv.AppendInt(append(l.values, ";t="...), next, 10)
			}
		}
	}
	l.add(h.name("ratelimit"), length)
	length = len(l.values)
	for i, a := range shown {
		if first(shown, i) {
			l.separate(i)
			l.values = append(l.values, a.Limit.PolicyItem...)
			if a.Limit.Calendar != nil {
				l.values = strconv.AppendInt(append(l.values, ";w="...), ratelimit.Seconds(a.Window()), 10)
			}
		}
	}
	l.add(h.name("ratelimit-policy"), length)
}

// first reports whether no limit before the one at i has its policy.
func first(shown []*ratelimit.Applied, i int) bool {
	for _, b := range shown[:i] {
		if b.Limit == shown[i].Limit || b.Limit.Policy == shown[i].Limit.Policy {
			return false
		}
	}
	return true
}

// separate appends what precedes item i of a list (RFC 9651).
func (l *List) separate(i int) {
	if i > 0 {
		l.values = append(l.values, ", "...)
	}
}

// addSpring adds the headers of Spring Cloud Gateway. As there, -1 remain if a store error let the request pass. Its
// rates are whole numbers a second, so a limit with another rate, or with none, has no header of it.
func (l *List) addSpring(h *Headers, res *ratelimit.Result, a *ratelimit.Applied) {
	remaining, seconds := a.Decision.Remaining, max(1, a.Window()/1_000_000)
	if res.Decider == ratelimit.FromPolicyAllow {
		remaining = -1
	}
	l.addNumber(h.name("x-ratelimit-remaining"), remaining)
	if a.Limit.Requests%seconds == 0 && !a.Limit.Algorithm.Windowless() {
		l.addNumber(h.name("x-ratelimit-replenish-rate"), a.Limit.Requests/seconds)
	}
	l.addNumber(h.name("x-ratelimit-burst-capacity"), a.Limit.Capacity())
	l.addNumber(h.name("x-ratelimit-requested-tokens"), int64(a.Cost))
}

// addOwn adds own headers for a limit. Of two with one name, the first stays.
func (l *List) addOwn(own []ratelimit.OwnHeader, res *ratelimit.Result, a *ratelimit.Applied) {
	for i := range own {
		o := &own[i]
		named := func(h Header) bool { return h.Name == o.Name }
		if o.Ends && (res.Allowed || res.RetryAfter == bucket.Never) || slices.ContainsFunc(l.Headers, named) {
			continue
		}
		length := len(l.values)
		l.values = appendFilled(l.values, o.Template, res, a, a.Limit.Capacity())
		l.add(o.Name, length)
	}
}

// addRetryAfter adds Retry-After to a denial that ends: whole seconds, at least 1 and the t of the draft.
func (h *Headers) addRetryAfter(l *List, res *ratelimit.Result, shown []*ratelimit.Applied) {
	if res.Allowed || res.RetryAfter == bucket.Never {
		return
	}
	seconds := retryAfter(res)
	if len(shown) > 0 && shown[0].Denied() && slices.Contains(h.Sets, Draft) { // a hidden limit may deny
		seconds = max(seconds, ratelimit.Seconds(shown[0].Decision.NextIn))
	}
	l.addNumber(retryAfterName, seconds)
}
