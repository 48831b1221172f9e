package authz

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/reply"
)

// refuse turns the decision into a refusal. detail is for the client.
func (d *Decision) refuse(reason Reason, status int, detail string) {
	d.Verdict, d.Reason, d.Status = Refused, reason, status
	if detail != "" {
		d.Body = reply.Refusal(status, detail)
	}
}

// undecided turns it into an answer that says so; whoever asked decides what that means.
func (d *Decision) undecided() {
	d.Verdict, d.Reason, d.Status = Undecided, ReasonUndecided, 503
	d.Body = reply.Refusal(503, "This can not be decided at the moment.")
	d.ToClient = append(d.ToClient, reply.Header{Name: "retry-after", Value: "1"})
}

// challenge tells what credentials are taken (WWW-Authenticate, RFC 9110, 11.6.1), with the error of RFC 6750, 3.1 for tokens.
func (d *Decision) challenge(p *Policy, tokenError string) {
	if d.Status != 401 {
		return
	}
	var challenges []string
	for _, c := range p.Credentials {
		text := ""
		switch {
		case c.APIKey != nil && c.APIKey.Source.Scheme != "":
			text = fmt.Sprintf("%s realm=%q", c.APIKey.Source.Scheme, realm(d.Domain))
		case c.APIKey != nil:
			text = fmt.Sprintf("ApiKey realm=%q", realm(d.Domain))
		case c.JWT != nil:
			text = fmt.Sprintf("Bearer realm=%q", realm(d.Domain))
			if tokenError != "" {
				text += fmt.Sprintf(", error=%q", tokenError)
			}
		}
		if text != "" && !slices.Contains(challenges, text) {
			challenges = append(challenges, text)
		}
	}
	if len(challenges) > 0 {
		d.ToClient = append(d.ToClient, reply.Header{Name: "www-authenticate", Value: strings.Join(challenges, ", ")})
	}
}

// realm is the domain as a quoted string can hold it.
func realm(domain string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, domain)
}

// notTheClients are request headers that only Envoy may set.
var notTheClients = [...]string{"x-envoy-auth-failure-mode-allowed", "x-envoy-auth-partial-body"}

// cleanse takes the credentials off the request and says who calls. Every header of ours is set or removed, so that what a
// client sends under its name never reaches the upstream.
func (d *Decision) cleanse(p *Policy, r *Request, limitHeaders []string) {
	if d.Verdict != Allowed {
		return
	}
	d.Remove = append(d.Remove, notTheClients[:]...)
	// Headers of a response, which an upstream that counts for itself might take for true.
	d.Remove = append(d.Remove, limitHeaders...)
	d.Keep = p.KeepHeaders
	for _, name := range overrideHeaders {
		if !slices.Contains(p.KeepHeaders, name) {
			d.Remove = append(d.Remove, name)
		}
	}
	var cookies []string
	for i := range p.Credentials {
		source := p.Credentials[i].source()
		d.strip(source, r)
		if source.Cookie != "" {
			cookies = append(cookies, source.Cookie)
		}
	}
	if len(cookies) > 0 {
		d.stripCookies(cookies, r)
	}
	for _, h := range []reply.Header{
		{Name: p.Headers.Owner, Value: d.Identity.Owner},
		{Name: p.Headers.Plan, Value: d.Identity.Plan},
		{Name: p.Headers.Method, Value: d.Identity.Method},
		{Name: p.Headers.KeyID, Value: d.Identity.KeyID},
	} {
		switch {
		case h.Name == "":
		case CheckText(h.Value) != nil: // also the id of a key, whose name its issuer chooses
			d.Remove = append(d.Remove, h.Name)
		default:
			d.ToUpstream = append(d.ToUpstream, h)
		}
	}
}

func (c *Credential) source() Source {
	switch {
	case c.APIKey != nil:
		return c.APIKey.Source
	case c.JWT != nil:
		return c.JWT.Source
	}
	return Source{}
}

// strip takes a credential off the request.
func (d *Decision) strip(s Source, r *Request) {
	switch {
	case s.Header != "":
		d.removeOnce(s.Header)
	case s.Scheme != "":
		value, _ := r.Headers.Get("authorization")
		for one := range strings.SplitSeq(value, ",") { // the upstream may read any of several
			if scheme, _ := cutScheme(one); strings.EqualFold(scheme, s.Scheme) {
				d.removeOnce("authorization")
			}
		}
	case s.Query != "":
		if !slices.Contains(d.RemoveQuery, s.Query) {
			d.RemoveQuery = append(d.RemoveQuery, s.Query)
		}
	}
}

func (d *Decision) removeOnce(name string) {
	if !slices.Contains(d.Remove, name) {
		d.Remove = append(d.Remove, name)
	}
}

// stripCookies takes cookies with these names off the request and leaves the others.
func (d *Decision) stripCookies(names []string, r *Request) {
	var rest []string
	found := false
	for _, header := range r.Headers["cookie"] {
		for pair := range strings.SplitSeq(header, ";") {
			pair = strings.TrimSpace(pair)
			name, _, _ := strings.Cut(pair, "=")
			switch {
			case slices.Contains(names, name):
				found = true
			case pair != "":
				rest = append(rest, pair)
			}
		}
	}
	switch {
	case !found:
	case len(rest) == 0:
		d.removeOnce("cookie")
	default:
		d.ToUpstream = append(d.ToUpstream, reply.Header{Name: "cookie", Value: strings.Join(rest, "; ")})
	}
}

// finish adds what every answer has: the rate limit headers, and the body of a refusal.
func (d *Decision) finish(cfg Config) {
	if d.Limits != nil && d.Verdict != Undecided {
		d.ToClient = append(d.ToClient, cfg.Headers.For(d.Limits)...)
		if d.Verdict == Refused { // over a limit
			d.Body = reply.Problem(d.Limits)
		}
	}
	switch {
	case d.Verdict == Allowed || !cfg.ProblemBody:
		d.Body, d.ContentType = nil, ""
	default:
		d.ContentType = reply.ProblemType
	}
}
