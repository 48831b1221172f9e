package policytest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// outcome is what became of a request: values by their label, such as "rule=", "retry-after:" (for the client) or
// "upstream x-auth-owner:". "" is the verdict, and the status of a check.
type outcome struct {
	*inspect.Explanation
	result *ratelimit.Result
	values map[string][]string
}

func newOutcome(m flow.Method, d *flow.Decided) *outcome {
	e := inspect.Explained(m, d, nil)
	o := &outcome{e, d.Result, map[string][]string{
		"": {e.Verdict}, "rule=": {e.Rule}, "reason=": {e.Reason}, "cause=": {e.Cause},
		"retry_after=": {fmt.Sprint(e.RetryAfter)},
	}}
	if tightest := d.Result.Tightest(); tightest != nil {
		o.values["limit="] = []string{tightest.Binding.Limit.Policy}
		o.values["remaining="] = []string{fmt.Sprint(tightest.Binding.Decision.Remaining)}
		for i := range d.Result.Limits {
			a := &d.Result.Limits[i]
			o.values["remaining."+a.Limit.Policy+"="] = []string{fmt.Sprint(a.Decision.Remaining)}
		}
	}
	add := func(to string, headers ...*corev3.HeaderValue) {
		for _, h := range headers {
			label := to + strings.ToLower(h.GetKey()) + ":"
			o.values[label] = append(o.values[label], h.GetValue()+string(h.GetRawValue()))
		}
	}
	limit, check := new(rlsv3.RateLimitResponse), new(authv3.CheckResponse)
	if m == flow.Check {
		o.values[""] = append(o.values[""], fmt.Sprint(max(e.Status, 200)))
		_ = proto.Unmarshal(d.Reply, check) // the codecs' tests show that this cannot fail
	} else {
		_ = proto.Unmarshal(d.Reply, limit)
	}
	add("", limit.GetResponseHeadersToAdd()...)
	add("upstream ", limit.GetRequestHeadersToAdd()...)
	ok := check.GetOkResponse()
	for _, h := range slices.Concat(check.GetDeniedResponse().GetHeaders(), ok.GetResponseHeadersToAdd()) {
		add("", h.GetHeader())
	}
	for _, h := range ok.GetHeaders() {
		add("upstream ", h.GetHeader())
	}
	return o
}

// expectation is that a label of an outcome has a value. In the value, * stands for any text.
type expectation struct {
	label, value string
	// never means that there is no such label.
	never bool
}

// expectable is what can be expected beside statuses and headers.
var expectable = []string{"allowed", "refused", "undecided", "rule=", "limit=", "remaining=", "remaining.LIMIT=",
	"retry_after=", "reason=", "cause="}

var isExpected = regexp.MustCompile(`^(allowed|refused|undecided|[1-5][0-9][0-9])$|` +
	`^((?:rule|limit|remaining|remaining\.[^=:]+|retry_after|reason|cause)=|[^=:]+:)(.*)$`)

// expect reads the words after the arrow.
func (p *parser) expect(s *Step, list []word) {
	for i := 0; i < len(list); i++ {
		w, prefix := list[i], ""
		if i+1 < len(list) && (w.text == "no" || w.text == "upstream") {
			i++
			if prefix, w = w.text, list[i]; prefix == "no" {
				s.expected = append(s.expected, expectation{strings.ToLower(w.text) + ":", "*", true})
				continue
			}
			prefix += " "
		}
		parts := isExpected.FindStringSubmatch(w.text)
		switch {
		case parts == nil || prefix != "" && !strings.HasSuffix(parts[2], ":"):
			name := w.text[:strings.IndexAny(w.text+"=", "=:")]
			meant := map[string]string{"ok": expectable[0], "denied": expectable[1], "over_limit": expectable[1]}[name]
			p.unknown(word{name, w.column, utf8.RuneCountInString(name)}, expectable, suggest.DidYouMean(meant, expectable),
				"or a status such as 401, a header such as `retry-after:12`, `upstream NAME:VALUE`, `no NAME`")
		case s.Method == flow.RateLimit && len(parts[1]) == len("429"):
			p.fail(w, "an answer to `limit` has no status", "want `allowed` or `refused`: Envoy chooses the status")
		case strings.HasSuffix(parts[2], ":"):
			s.expected = append(s.expected, expectation{prefix + strings.ToLower(parts[2]), parts[3], false})
		default:
			s.expected = append(s.expected, expectation{parts[2], parts[1] + parts[3], false})
		}
	}
}

// judge returns how an outcome differs from what a step expects, "" if it does not. Only the last repetition has to
// have more than the expected verdict or status.
func (s *Step) judge(o *outcome, last bool) (want, got string) {
	for _, e := range s.expected {
		values := o.values[e.label]
		holds := slices.ContainsFunc(values, func(v string) bool { return descriptors.Match(e.value, v) })
		if e.label != "" && !last || holds != e.never {
			continue
		}
		has := "no " + strings.TrimRight(e.label, ":=")
		if values != nil {
			has = e.label + strings.Join(values, " ")
		}
		wanted := e.label + e.value
		if e.never {
			wanted = "no " + strings.TrimSuffix(e.label, ":")
		}
		want, got = want+" "+wanted, got+" "+has
	}
	return strings.TrimSpace(want), strings.TrimSpace(got)
}
