package telemetry

import (
	"cmp"
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
	limit           *ratelimit.Applied // the limit that the line is about, nil for none
	status          *ratelimit.Status  // that of its descriptor
}

func rateLimitDecision(q *ratelimit.Query, res *ratelimit.Result) decision {
	d := decision{service: "ratelimit", domain: q.Domain, verdict: authz.Allowed, reason: reply.ReasonAllowed}
	switch {
	case res.Err != nil, !res.Allowed && res.Decider == ratelimit.FromPolicyDeny:
		d.verdict, d.reason = authz.Undecided, reply.ReasonUndecided
	case !res.Allowed:
		d.verdict, d.reason = authz.Refused, reply.ReasonOverLimit
	}
	d.setLimit(res)
	return d
}

func checkDecision(c *authz.Checked) decision {
	d := decision{service: "authz", domain: c.Decision.Domain, verdict: c.Decision.Verdict, reason: c.Decision.LogReason()}
	d.setLimit(c.Decision.Limits)
	return d
}

// setLimit sets the limit of the line: one in shadow that would have denied, else the tightest. res may be nil.
func (d *decision) setLimit(res *ratelimit.Result) {
	if d.status = res.Tightest(); d.status == nil {
		return
	}
	d.limit = d.status.Binding
	for i := range res.Statuses {
		s := &res.Statuses[i]
		if s.ShadowDenied != nil && d.verdict == authz.Allowed && d.reason != reply.ReasonShadowDenied {
			d.status, d.limit, d.reason = s, s.ShadowDenied, reply.ReasonShadowDenied
		}
	}
}

// passes reports whether the request is allowed, and would be without shadow mode, or reads the quota of its client.
func (d *decision) passes() bool {
	return d.verdict == authz.Answered || d.verdict == authz.Allowed && d.reason != reply.ReasonShadowDenied
}

// who returns the attributes by which lines belong together.
func (d *decision) who() []slog.Attr {
	attrs := text("service", d.service, "verdict", d.verdict.String(), "reason", string(d.reason), "domain", d.domain)
	if d.limit == nil {
		return attrs
	}
	return append(attrs, ruleAttrs(d.status, d.limit)...)
}

// attrs returns the attributes that lines of both services have. res is nil without a limit.
func (d *decision) attrs(res *ratelimit.Result) []slog.Attr {
	attrs := d.who()
	if d.limit != nil {
		attrs = append(append(attrs, numbers(d.limit)...), slog.String("decided_by", res.Decider.String()))
	}
	return attrs
}

// checkAttrs returns the attributes that only decisions of ext_authz have, without values of the client.
func checkAttrs(c *authz.Checked) []slog.Attr {
	d := c.Decision
	attrs := text("cause", d.Cause, "method", d.Identity.Method, "key_id", d.Identity.KeyID)
	attrs = append(attrs, text("shadow_access", d.ShadowDenied)...)
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

// ruleAttrs returns the name of a rule, its position, and the name of its limit, which may be nil.
func ruleAttrs(s *ratelimit.Status, a *ratelimit.Applied) []slog.Attr {
	attrs := text("rule", s.RuleName())
	if s.Rule != nil {
		attrs = append(attrs, text("at", s.Rule.Node.Position)...)
	}
	if a != nil {
		attrs = append(attrs, text("limit", a.Limit.Policy)...)
	}
	return attrs
}

// numbers returns the numbers of a limit, and what is left of it.
func numbers(a *ratelimit.Applied) []slog.Attr {
	attrs := []slog.Attr{
		slog.Int64("requests", a.Limit.Requests), slog.Int64("window", ratelimit.Seconds(a.Window())),
		slog.Uint64("cost", a.Cost), slog.Int64("remaining", a.Decision.Remaining),
	}
	if !a.Decision.Allowed && a.Decision.RetryAfter >= 0 {
		attrs = append(attrs, slog.Int64("retry_after", ratelimit.Seconds(a.Decision.RetryAfter)))
	}
	return append(attrs, holds(a)...)
}

// holds returns what a limit was asked of its holds, and the live ones of its bucket. A limit without holds has none.
func holds(a *ratelimit.Applied) (attrs []slog.Attr) {
	h := a.Decision.Held
	if h == nil {
		return nil
	}
	switch {
	case a.Settles():
		attrs = text("hold", "settle", "hold_id", a.Hold.Settles[0].ID.String())
		if h.Settled == 0 {
			attrs[0] = slog.String("hold", "settle_unknown")
		}
	case a.Hold != nil:
		attrs = text("hold", "reserve", "hold_id", a.Hold.Reserves[0].ID.String())
	}
	return append(attrs, slog.Int64("holds", h.Number), slog.Int64("held", h.Units))
}

// descriptors returns the keys of the descriptor of the line, and the others: at DEBUG all, at INFO those denied.
func (l *DecisionLog) descriptors(d *decision, q *ratelimit.Query, res *ratelimit.Result,
	show ratelimit.ClientValues) (own []slog.Attr) {
	var others []slog.Attr
	for i := range q.Descriptors {
		s, entries := new(ratelimit.Status), q.Descriptors[i].Entries
		if i < len(res.Statuses) { // there are none if the query is a mistake
			s = &res.Statuses[i]
		}
		denied := s.ShadowDenied != nil || s.Binding != nil && s.Binding.Denied()
		if s != d.status && !denied && !l.debugs() {
			continue
		}
		keys, values := textsOf(entries)
		attrs := []slog.Attr{slog.Any("keys", keys)}
		if show == ratelimit.ShowValues {
			attrs = append(attrs, slog.Any("values", values))
		}
		if s != d.status {
			attrs = append(attrs, text("decision", decisionText(s))...)
			switch {
			case s.Binding != nil:
				attrs = append(append(attrs, ruleAttrs(s, s.Binding)...), numbers(s.Binding)...)
			case s.Rule != nil:
				attrs = append(attrs, ruleAttrs(s, nil)...)
			default:
				attrs = append(attrs, text("miss", cmp.Or(q.Rules, l.cfg.Rules()).Miss(q.Domain, entries, show))...)
			}
		}
		if a := s.ShadowDenied; a != nil && a != s.Binding && a != d.limit {
			attrs = append(attrs, text("shadow_denied", a.Limit.Policy)...)
		}
		if s == d.status {
			own = attrs
		} else {
			others = append(others, slog.Attr{Key: strconv.Itoa(i), Value: slog.GroupValue(attrs...)})
		}
	}
	if len(others) > 0 {
		own = append(own, slog.Attr{Key: "descriptors", Value: slog.GroupValue(others...)})
	}
	return own
}

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
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return unicode.ReplacementChar
		}
		return c
	}, s[:min(len(s), maxLogged)])
}
