package policytest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// outcome is what became of a request.
type outcome struct {
	*inspect.Explanation
	result *ratelimit.Result
	// client are the headers for the client, upstream those for the upstream: "name:value".
	client, upstream []string
}

// newOutcome returns the outcome of a decision.
func newOutcome(m flow.Method, d *flow.Decided) *outcome {
	o := &outcome{Explanation: inspect.Explained(m, d, nil), result: d.Result}
	type header interface {
		GetKey() string
		GetValue() string
		GetRawValue() []byte
	}
	add := func(list *[]string, h header) {
		*list = append(*list, strings.ToLower(h.GetKey())+":"+h.GetValue()+string(h.GetRawValue()))
	}
	if m == flow.RateLimit {
		answer := new(rlsv3.RateLimitResponse)
		_ = proto.Unmarshal(d.Reply, answer) // the codecs' tests show that this cannot fail
		for _, h := range answer.GetResponseHeadersToAdd() {
			add(&o.client, h)
		}
		for _, h := range answer.GetRequestHeadersToAdd() {
			add(&o.upstream, h)
		}
		return o
	}
	answer := new(authv3.CheckResponse)
	_ = proto.Unmarshal(d.Reply, answer)
	if answer.GetStatus().GetCode() != int32(codes.OK) {
		for _, h := range answer.GetDeniedResponse().GetHeaders() {
			add(&o.client, h.GetHeader())
		}
		return o
	}
	for _, h := range answer.GetOkResponse().GetHeaders() {
		add(&o.upstream, h.GetHeader())
	}
	for _, h := range answer.GetOkResponse().GetResponseHeadersToAdd() {
		add(&o.client, h.GetHeader())
	}
	return o
}

// expectation is something that a step expects.
type expectation struct {
	// text is the expectation as it is written. label and a value that got returns form the same text.
	text, label string
	// want is the wanted value, in which * stands for any text.
	want string
	got  func(o *outcome) []string
	// each means that it holds for each repetition, and not only for the last. never means that no value is wanted.
	each, never bool
}

// holds reports whether an outcome is as expected. actual is what it has in place of the expected text.
func (e *expectation) holds(o *outcome) (ok bool, actual string) {
	values := e.got(o)
	ok = slices.ContainsFunc(values, func(v string) bool { return descriptors.Match(e.want, v) }) != e.never
	if len(values) == 0 {
		return ok, "no " + strings.TrimRight(e.label, ":=")
	}
	return ok, e.label + strings.Join(values, ","+e.label)
}

// facts are what can be expected with =.
var facts = []string{"rule", "limit", "remaining", "retry_after", "reason", "cause"}

// fact returns the value of a fact.
func fact(name string) func(o *outcome) []string {
	return func(o *outcome) []string {
		tightest := o.result.Tightest()
		switch {
		case name == "rule":
			return []string{o.Rule}
		case name == "retry_after":
			return []string{strconv.FormatInt(o.RetryAfter, 10)}
		case name == "reason":
			return []string{o.Reason}
		case name == "cause":
			return []string{o.Cause}
		case tightest == nil:
		case name == "limit":
			return []string{tightest.Binding.Limit.Policy}
		case name == "remaining":
			return []string{strconv.FormatInt(tightest.Binding.Decision.Remaining, 10)}
		default:
			for i := range o.result.Limits {
				if a := &o.result.Limits[i]; "remaining."+a.Limit.Policy == name {
					return []string{strconv.FormatInt(a.Decision.Remaining, 10)}
				}
			}
		}
		return nil
	}
}

// verdicts are those of an explanation.
var verdicts = []string{"allowed", "refused", "undecided"}

var isStatus = regexp.MustCompile(`^[1-5][0-9][0-9]$`)

// status returns the HTTP status of a check.
func status(o *outcome) []string {
	if o.Verdict == "allowed" {
		return []string{"200"}
	}
	return []string{strconv.Itoa(o.Status)}
}

// expect reads the words after the arrow.
func (p *parser) expect(s *Step, verb string, words []word) {
	for ; len(words) > 0; words = words[1:] {
		w := words[0]
		e := expectation{text: w.text, want: w.text}
		prefixed := (w.text == "no" || w.text == "upstream") && len(words) > 1
		if prefixed {
			words = words[1:]
			e.text += " " + words[0].text
		}
		switch name, value := cutAny(words[0].text, "=:"); {
		case w.text == "no" && prefixed:
			e.label, e.want, e.never = strings.ToLower(words[0].text)+":", "*", true
			e.got = clientHeader(e.label)
		case prefixed && !strings.HasPrefix(words[0].text, name+":"):
			p.fail(words[0], suggest.Quoted(words[0].text)+" is no header", "write `upstream NAME:VALUE`")
		case prefixed:
			e.label, e.want = "upstream "+strings.ToLower(name)+":", value
			e.got = func(o *outcome) []string { return valuesOf(o.upstream, strings.ToLower(name)+":") }
		case strings.HasPrefix(w.text, name+":") && name != "":
			e.label, e.want = strings.ToLower(name)+":", value
			e.got = clientHeader(e.label)
		case slices.Contains(verdicts, w.text):
			e.each, e.got = true, func(o *outcome) []string { return []string{o.Verdict} }
		case isStatus.MatchString(w.text) && verb != "limit":
			e.each, e.got = true, status
		case isStatus.MatchString(w.text):
			p.fail(w, "an answer to `limit` has no status", "want `allowed` or `refused`: Envoy chooses the status")
		case name != w.text && (slices.Contains(facts, name) || strings.HasPrefix(name, "remaining.")):
			e.label, e.want, e.got = name+"=", value, fact(name)
		default:
			meant := map[string]string{"ok": verdicts[0], "denied": verdicts[1], "over_limit": verdicts[1]}[w.text]
			p.unknown(word{name, w.column, len([]rune(name))}, "expectation", slices.Concat(verdicts, facts),
				"or a status such as 401 (of `check`), a header such as `retry-after:12`, `upstream NAME:VALUE`, `no NAME`",
				suggest.DidYouMean(meant, verdicts))
		}
		s.expected = append(s.expected, e)
	}
}

// cutAny splits a text at the first of some characters. Without one, before is the whole text.
func cutAny(text, chars string) (before, after string) {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, ""
}

// clientHeader returns the values of a header for the client. Its label is "name:".
func clientHeader(label string) func(o *outcome) []string {
	return func(o *outcome) []string { return valuesOf(o.client, label) }
}

// valuesOf returns the values of the headers in a list that begin with a label.
func valuesOf(list []string, label string) (values []string) {
	for _, h := range list {
		if value, ok := strings.CutPrefix(h, label); ok {
			values = append(values, value)
		}
	}
	return values
}
