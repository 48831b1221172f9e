package authz

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/reply"
)

// refuse turns the decision into a refusal with the status of the reason.
func (d *Decision) refuse(reason reply.Reason) { d.refuseWith(reason, reason.Status(), "") }

// refuseWith adds the challenge (WWW-Authenticate) if the status is 401.
func (d *Decision) refuseWith(reason reply.Reason, status int, challenge string) {
	d.Verdict, d.Reason, d.Status = Refused, reason, status
	if status == 401 && challenge != "" {
		d.ToClient = append(d.ToClient, reply.Header{Name: "www-authenticate", Value: challenge})
	}
}

// undecided makes the decision Undecided. The transport decides how to answer that.
func (d *Decision) undecided() {
	d.refuse(reply.ReasonUndecided)
	d.Verdict = Undecided
}

// envoyOnly are request headers that only Envoy may set.
var envoyOnly = [...]string{"x-envoy-auth-failure-mode-allowed", "x-envoy-auth-partial-body"}

// cleanse removes credentials, except for the used one if it is forwarded. So the upstream gets no token that is not
// verified. It sets or removes each identity header, whatever the client sends.
func (d *Decision) cleanse(p *policy, r *Request, used *accepted) {
	remove := &p.removal
	if used != nil {
		remove = used.removal
	}
	d.Strip, d.RemoveQuery = remove.strip, remove.query
	for i := range r.Headers {
		if name := r.Headers[i].Name; p.lookalikes.has(name) {
			d.Remove = append(d.Remove, name)
		}
	}
	if slices.ContainsFunc(remove.schemes, func(scheme string) bool { return carries(scheme, r) }) &&
		!slices.Contains(d.Remove, "authorization") {
		d.Remove = append(d.Remove, "authorization")
	}
	if len(remove.cookies) > 0 {
		d.stripCookies(remove.cookies, r)
	}
	for i, value := range [...]string{d.Identity.Owner, d.Identity.Plan, d.Identity.Method, d.Identity.KeyID} {
		d.setHeader(p.headers[i], value)
	}
}

// setHeader sets a header for the upstream, or removes it.
func (d *Decision) setHeader(name, value string) {
	switch {
	case name == "":
	case value == "" || credential.CheckText(value) != nil: // possible for the kid of a token, which its issuer chooses
		d.Remove = append(d.Remove, name)
	default:
		d.ToUpstream = append(d.ToUpstream, reply.Header{Name: name, Value: value})
	}
}

// carries reports whether one of the Authorization headers, any of which the upstream may read, has the scheme.
func carries(wanted string, r *Request) bool {
	value, _ := r.Headers.Get("authorization")
	for one := range strings.SplitSeq(value, ",") {
		if scheme, _ := cutScheme(one); strings.EqualFold(scheme, wanted) {
			return true
		}
	}
	return false
}

// stripCookies removes the cookies with these names and keeps the others.
func (d *Decision) stripCookies(names []string, r *Request) {
	var rest []string
	found := false
	cookies, _ := r.Headers.joined("cookie", ";")
	for pair := range strings.SplitSeq(cookies, ";") {
		pair = strings.TrimSpace(pair)
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case slices.Contains(names, strings.TrimSpace(name)):
			found = true
		case pair != "":
			rest = append(rest, pair)
		}
	}
	switch {
	case !found:
	case len(rest) == 0:
		d.Remove = append(d.Remove, "cookie")
	default:
		d.ToUpstream = append(d.ToUpstream, reply.Header{Name: "cookie", Value: strings.Join(rest, "; ")})
	}
}

// finish adds the rate limit headers, and the body of an answer that is not from the upstream.
func (p *Pending) finish(cfg *Config) {
	d := &p.Decision
	if d.Limits != nil && d.Verdict != Undecided {
		cfg.Headers.Add(&p.limits, d.Limits, p.policy.limitHeaders)
		d.ToClient = append(d.ToClient, p.limits.Headers...)
	}
	switch {
	case d.Verdict == Answered:
		p.body = reply.AppendQuota(p.body[:0], d.Limits)
		d.Body, d.ContentType = p.body, reply.QuotaType
		d.ToClient = append(d.ToClient, reply.Header{Name: "cache-control", Value: "no-store"})
	case d.Verdict != Allowed && cfg.ProblemBody:
		p.body = d.Reason.AppendBody(p.body[:0], d.Status, d.Limits)
		d.Body, d.ContentType = p.body, reply.ProblemType
	}
}
