package telemetry

import (
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// maxLogged bounds a text in a log line.
const maxLogged = 256

// decision is what the lines of both services have in common.
type decision struct {
	service, domain string
	verdict         authz.Verdict
	reason          reply.Reason
	rule            *ratelimit.Status // with the tightest limit, nil without any
}

func rateLimitDecision(q *ratelimit.Query, res *ratelimit.Result) decision {
	d := decision{
		service: "ratelimit", domain: q.Domain, verdict: authz.Allowed, reason: reply.ReasonAllowed, rule: res.Tightest(),
	}
	switch {
	case res.Err != nil, !res.Allowed && res.Decider == ratelimit.FromPolicyDeny:
		d.verdict, d.reason = authz.Undecided, reply.ReasonUndecided
	case !res.Allowed:
		d.verdict, d.reason = authz.Refused, reply.ReasonOverLimit
	}
	return d
}

// kept returns a copy that is valid after the request, without the limit.
func (d *decision) kept() decision {
	c := *d
	c.domain = strings.Clone(c.domain)
	if c.rule != nil {
		c.rule = &ratelimit.Status{Rule: c.rule.Rule}
	}
	return c
}

func checkDecision(c *authz.Checked) decision {
	d := c.Decision
	return decision{
		service: "authz", domain: d.Domain, verdict: d.Verdict, reason: d.Reason, rule: d.Limits.Tightest(),
	}
}

// who returns the attributes by which lines belong together.
func (d *decision) who() []slog.Attr {
	attrs := text("service", d.service, "verdict", verdictText(d.verdict), "reason", string(d.reason), "domain", d.domain)
	return append(attrs, ruleAttrs(d.rule)...)
}

// attrs returns the attributes that lines of both services have. res is nil without a limit.
func (d *decision) attrs(res *ratelimit.Result) []slog.Attr {
	attrs := d.who()
	if d.rule != nil {
		attrs = append(attrs, limitAttrs(d.rule.Binding)...)
		attrs = append(attrs, slog.String("decided_by", res.Decider.String()))
	}
	return attrs
}

// checkAttrs returns the attributes that only decisions of ext_authz have, without values of the client.
func checkAttrs(c *authz.Checked) []slog.Attr {
	d := c.Decision
	attrs := text("cause", d.Cause, "method", d.Identity.Method, "key_id", d.Identity.KeyID)
	attrs = append(attrs, text("absent_claims", strings.Join(d.Absent, ", "))...)
	if c.Status != 0 {
		attrs = append(attrs, slog.Int("status", c.Status))
	}
	if c.DroppedHeaders > 0 {
		attrs = append(attrs, slog.Int("dropped_headers", c.DroppedHeaders))
	}
	if d.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", time.Duration(d.Delay)*time.Microsecond))
	}
	return append(attrs, slog.Duration("took", c.Took))
}

// ruleAttrs returns the name of a rule and its position. s may be nil.
func ruleAttrs(s *ratelimit.Status) []slog.Attr {
	if s == nil || s.Rule == nil {
		return text("rule", s.RuleName())
	}
	return text("rule", s.Rule.Name, "at", s.Rule.Node.Position)
}

// limitAttrs returns a limit and what is left of it.
func limitAttrs(a *ratelimit.Applied) []slog.Attr {
	attrs := append(text("limit", a.Limit.Policy),
		slog.Int64("requests", a.Limit.Requests), slog.Int64("window", ratelimit.Seconds(a.Limit.Window)),
		slog.Uint64("cost", a.Cost), slog.Int64("remaining", a.Decision.Remaining))
	if !a.Decision.Allowed && a.Decision.RetryAfter >= 0 {
		attrs = append(attrs, slog.Int64("retry_after", ratelimit.Seconds(a.Decision.RetryAfter)))
	}
	return attrs
}

// descriptors returns a group with each descriptor of a query: its keys, and the rule, or why none matches.
func (l *DecisionLog) descriptors(q *ratelimit.Query, res *ratelimit.Result, show ratelimit.ClientValues) slog.Attr {
	rules := q.Rules
	if rules == nil {
		rules = l.cfg.Rules()
	}
	list := make([]slog.Attr, len(q.Descriptors))
	for i := range q.Descriptors {
		entries := q.Descriptors[i].Entries
		attrs := []slog.Attr{slog.Any("keys", keysOf(entries))}
		if show == ratelimit.ShowValues {
			values := make([]string, len(entries))
			for k, e := range entries {
				values[k] = cut(e.Value)
			}
			attrs = append(attrs, slog.Any("values", values))
		}
		var s ratelimit.Status
		if i < len(res.Statuses) { // there are none if the query is a mistake
			s = res.Statuses[i]
		}
		attrs = append(attrs, text("decision", decisionText(&s))...)
		switch {
		case s.Binding != nil:
			attrs = append(append(attrs, ruleAttrs(&s)...), limitAttrs(s.Binding)...)
			if s.ShadowDenied != nil {
				attrs = append(attrs, text("shadow_denied", s.ShadowDenied.Limit.Policy)...)
			}
		case s.Rule != nil:
			attrs = append(attrs, ruleAttrs(&s)...)
		default:
			attrs = append(attrs, text("miss", rules.Miss(q.Domain, entries, show))...)
		}
		list[i] = slog.Attr{Key: strconv.Itoa(i), Value: slog.GroupValue(attrs...)}
	}
	return slog.Attr{Key: "descriptors", Value: slog.GroupValue(list...)}
}

// decisionText returns the decision on one descriptor.
func decisionText(s *ratelimit.Status) string {
	switch {
	case s.Unlimited:
		return "unlimited"
	case s.Binding == nil && s.Rule == nil:
		return "no_rule"
	case s.Binding == nil: // a limit of another descriptor has `replaces`
		return "replaced"
	case s.Binding.Denied():
		return "denied"
	case !s.Binding.Decision.Allowed:
		return "shadow_denied"
	}
	return "allowed"
}

func verdictText(v authz.Verdict) string {
	switch v {
	case authz.Allowed:
		return "allowed"
	case authz.Undecided:
		return "undecided"
	}
	return "refused"
}

// text returns an attribute for each key and value, except for empty values.
func text(pairs ...string) (attrs []slog.Attr) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			attrs = append(attrs, slog.String(pairs[i], cut(pairs[i+1])))
		}
	}
	return attrs
}

// cut returns a text for a log line: at most maxLogged bytes, without line breaks and other control characters. Quoting
// them is not enough, because a terminal shows an attribute of several lines below its line.
func cut(s string) string {
	s = s[:min(len(s), maxLogged)]
	if strings.ContainsFunc(s, unicode.IsControl) {
		return strings.Map(func(c rune) rune {
			if unicode.IsControl(c) {
				return unicode.ReplacementChar
			}
			return c
		}, s)
	}
	return s
}
