// Package inspect answers the questions of operators about decisions: why a request passes or not, and what its buckets
// hold. Each answer is one value, which commands print as text or JSON and the debug listener serves.
package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Explanation is why a request would pass now or not.
type Explanation struct {
	// Service is ratelimit or ext_authz.
	Service string `json:"service"`
	Domain  string `json:"domain,omitempty"`
	// Access and the credentials are those of ext_authz.
	Access      *AccessRule  `json:"access,omitempty"`
	InShadow    string       `json:"access_in_shadow,omitempty"` // the rule that `enforce` left out, and why
	Credentials []Credential `json:"credentials,omitempty"`
	// Descriptors are what the request counts against. Refused means those of `refused`, without a valid credential.
	Descriptors []Descriptor `json:"descriptors,omitempty"`
	Refused     bool         `json:"refused,omitempty"`

	// Verdict is allowed, refused, undecided, or answered (by the service itself: quota_path). Reason is as in the log of
	// decisions, and Cause what is wrong with the credential.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	Cause   string `json:"cause,omitempty"`
	// Absent are the claims that the policy names and the token lacks.
	Absent []string `json:"absent_claims,omitempty"`
	// Rule is the rule of the tightest limit, and DecidedBy what decided.
	Rule      string `json:"rule,omitempty"`
	DecidedBy string `json:"decided_by,omitempty"`
	// Status is the HTTP status of an answer by ext_authz. RetryAfter is in seconds, 0 if waiting does not help.
	Status     int   `json:"status,omitempty"`
	RetryAfter int64 `json:"retry_after,omitempty"`
	// Held is how long the answer would be held for max_delay, in seconds.
	Held float64 `json:"held,omitempty"`
	// Answer is the message to Envoy. Error replaces it if the call fails.
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// AccessRule is the access rule that a request matches.
type AccessRule struct {
	// At is the position of the rule; "" if none matches, so that a credential is needed.
	At      string   `json:"at,omitempty"`
	Require string   `json:"require"`
	Scopes  []string `json:"scopes,omitempty"`
}

// Credential is a credential that the policy accepts.
type Credential struct {
	authz.Tried
	// Valid means that it is the credential of the identity that follows.
	Valid  bool     `json:"valid,omitempty"`
	Owner  string   `json:"owner,omitempty"`
	Plan   string   `json:"plan,omitempty"`
	KeyID  string   `json:"key_id,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
}

// Descriptor is a descriptor and what the rules make of it.
type Descriptor struct {
	Entries []descriptors.Entry `json:"entries"`
	// Matched are the places of the rules that match, one for each entry. Miss is why no rule applies, "" if one does.
	Matched []string `json:"matched,omitempty"`
	Miss    string   `json:"miss,omitempty"`
	Rule    string   `json:"rule,omitempty"`
	At      string   `json:"at,omitempty"`
	// Unlimited means that the rule has no limit.
	Unlimited bool    `json:"unlimited,omitempty"`
	Buckets   []Asked `json:"buckets,omitempty"`
	// NoHold is why the last entry, which asks for a hold, asks for none here.
	NoHold string `json:"no_hold,omitempty"`
}

// Explained returns the explanation of a decision by the active rules. Only that of a Dry flow has buckets.
func Explained(m flow.Method, d *flow.Decided, rules *ratelimit.Rules) *Explanation {
	e := &Explanation{Service: "ratelimit", Held: d.Delay.Seconds()}
	if d.Query != nil {
		e.Domain = d.Query.Domain
		if d.Query.Rules != nil {
			rules = d.Query.Rules
		}
		e.Descriptors = describe(rules, d.Query, d.Result)
	}
	if m == flow.Check {
		e.Service = "ext_authz"
		e.explainCheck(d.Pending)
	} else {
		e.explainResult(d.Result)
	}
	if d.Err != nil {
		_, e.Error = flow.Status(d.Err)
		e.Verdict, e.Reason = "undecided", "undecided"
		return e
	}
	e.Answer = answerJSON(m, d.Reply)
	return e
}

func (e *Explanation) explainCheck(p *authz.Pending) {
	if p == nil { // the message is malformed
		return
	}
	d := &p.Decision
	e.Domain, e.Reason, e.Cause, e.Absent, e.Refused = d.Domain, string(d.Reason), d.Cause, d.Absent, p.Query.Refused
	access, tried := p.Way()
	if access != nil {
		e.Access = &AccessRule{At: access.Position, Require: access.Require.String(), Scopes: access.Scopes}
	}
	if shadow, why := p.InShadow(); shadow != nil {
		rule := AccessRule{At: shadow.Position, Require: shadow.Require.String(), Scopes: shadow.Scopes}
		e.InShadow = rule.text() + " (" + why + ")"
	}
	for _, t := range tried {
		c := Credential{Tried: t}
		if id := &d.Identity; t.Carried && id.Method == t.Kind {
			c.Valid, c.Owner, c.Plan, c.KeyID, c.Scopes = true, id.Owner, id.Plan, id.KeyID, id.Scopes
		}
		e.Credentials = append(e.Credentials, c)
	}
	e.explainResult(d.Limits)
	if e.Verdict = d.Verdict.String(); d.Verdict != authz.Allowed {
		e.Status = d.Status
	}
}

// explainResult adds what a result of the limiter tells, nil for none.
func (e *Explanation) explainResult(res *ratelimit.Result) {
	e.Verdict = "allowed"
	if e.Reason == "" {
		e.Reason = "allowed"
	}
	if res == nil {
		return
	}
	e.Rule, e.DecidedBy = res.Tightest().RuleName(), res.DecidedBy()
	if res.Allowed {
		return
	}
	e.Verdict = "refused"
	if e.Service == "ratelimit" {
		e.Reason = "over_limit"
	}
	if res.RetryAfter > 0 {
		e.RetryAfter = ratelimit.Seconds(res.RetryAfter)
	}
}

// describe explains the descriptors of a query.
func describe(rules *ratelimit.Rules, q *ratelimit.Query, res *ratelimit.Result) (list []Descriptor) {
	for i := range q.Descriptors {
		entries := q.Descriptors[i].Entries
		d := Descriptor{Entries: append([]descriptors.Entry(nil), entries...)} // the query may be used again
		if rules != nil {
			d.Matched = rules.Matched(q.Domain, entries)
			d.Miss = rules.Miss(q.Domain, entries, ratelimit.ShowValues)
		}
		if res != nil && i < len(res.Statuses) {
			s := &res.Statuses[i]
			if s.Rule != nil {
				d.Rule, d.At, d.Unlimited = s.Rule.Name, s.Rule.Node.Position, s.Unlimited
			}
			for k := range res.Limits {
				if b := res.Limits[k].Bucket; b != nil && b.Descriptor == i {
					d.Buckets = append(d.Buckets, askedOf(s.RuleName(), &res.Limits[k]))
					d.Buckets[len(d.Buckets)-1].Enforced = res.Limits[k].Limit.Enforced(entries)
				}
			}
			d.NoHold = noHold(&q.Descriptors[i], d.Buckets)
			if s.Binding != nil && s.Rule == nil {
				d.Rule, d.Miss = s.RuleName(), "" // the request brings its limit
			}
		}
		list = append(list, d)
	}
	return list
}

// answerJSON returns a message to Envoy in JSON.
func answerJSON(m flow.Method, message []byte) json.RawMessage {
	var answer proto.Message = new(rlsv3.RateLimitResponse)
	if m == flow.Check {
		answer = new(authv3.CheckResponse)
	}
	if proto.Unmarshal(message, answer) != nil {
		return nil // the codecs' tests show that this cannot happen
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		return nil
	}
	return text
}

// errRequest is the error for a text that is no request of either service.
var errRequest = errors.New(`want a CheckRequest, such as {"attributes": {"request": {"http": {"method": "GET", ` +
	`"path": "/"}}}}, or a RateLimitRequest, such as ` + rls.Example)

// FromJSON returns the message that a text has in JSON: a CheckRequest or a RateLimitRequest.
func FromJSON(text []byte) (m flow.Method, message string, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return 0, "", fmt.Errorf("no JSON: %w; %w", err, errRequest)
	}
	var b []byte
	switch {
	case fields["attributes"] != nil:
		m = flow.Check
		b, err = auth.FromJSON(text)
	case fields["descriptors"] != nil || fields["domain"] != nil:
		b, err = rls.FromJSON(text)
	default:
		err = errRequest
	}
	return m, string(b), err
}

// CheckRequest returns a request as Envoy sends it, with method, host and path as headers too. r must have Headers.
func CheckRequest(domain, source string, r *authv3.AttributeContext_HttpRequest) *authv3.CheckRequest {
	r.Headers[":method"], r.Headers[":authority"], r.Headers[":path"] = r.GetMethod(), r.GetHost(), r.GetPath()
	a := &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: source},
		}}},
		Request: &authv3.AttributeContext_Request{Http: r},
	}
	if domain != "" {
		a.ContextExtensions = map[string]string{authz.DomainExtension: domain}
	}
	return &authv3.CheckRequest{Attributes: a}
}

// Text writes the explanation for people. It does not have the answer.
func (e *Explanation) Text(w io.Writer) {
	fmt.Fprint(w, e.Service)
	if e.Domain != "" {
		fmt.Fprintf(w, ", domain %s", e.Domain)
	}
	fmt.Fprintln(w)
	if e.InShadow != "" {
		fmt.Fprintf(w, "in shadow    %s\n", e.InShadow)
	}
	if a := e.Access; a != nil {
		fmt.Fprintf(w, "access       %s\n", a.text())
	}
	for _, c := range e.Credentials {
		fmt.Fprintf(w, "credential   %s, %s: %s\n", c.Kind, c.Place, c.text(e))
	}
	for i := range e.Descriptors {
		e.Descriptors[i].write(w)
	}
	fmt.Fprintf(w, "=> %s\n", e.verdict())
}

func (c *Credential) text(e *Explanation) string {
	switch {
	case !c.Carried:
		return "absent"
	case !c.Valid && e.Cause != "":
		return "not valid (" + e.Cause + ")"
	case !c.Valid:
		return "not valid"
	}
	parts := suggest.Parts{"owner " + c.Owner}
	parts.Add(c.Plan != "", "plan %s", c.Plan)
	parts.Add(c.KeyID != "", "key_id %s", c.KeyID)
	parts.Add(c.Scopes != nil, "scopes %q", c.Scopes)
	parts.Add(e.Absent != nil, "no claim %s", strings.Join(e.Absent, ", "))
	return "valid (" + strings.Join(parts, ", ") + ")"
}

func (a *AccessRule) text() string {
	text := "no rule matches, so a credential is needed"
	if a.At != "" {
		text = a.At + ": " + a.Require
	}
	if len(a.Scopes) > 0 {
		text += " with scopes " + strings.Join(a.Scopes, ", ")
	}
	return text
}

func (d *Descriptor) write(w io.Writer) {
	var pairs []string
	for _, entry := range d.Entries {
		pairs = append(pairs, entry.Key+"="+entry.Value)
	}
	fmt.Fprintf(w, "descriptor   %s\n", strings.Join(pairs, ","))
	for _, place := range d.Matched {
		fmt.Fprintf(w, "  matched    %s\n", place)
	}
	switch {
	case d.Miss != "":
		fmt.Fprintf(w, "  no limit   %s\n", d.Miss)
	case d.Unlimited:
		fmt.Fprintf(w, "  no limit   the rule %s is unlimited\n", d.Rule)
	}
	if d.NoHold != "" {
		fmt.Fprintf(w, "  no hold    %s\n", d.NoHold)
	}
	for i := range d.Buckets {
		fmt.Fprintf(w, "  bucket     %s\n", d.Buckets[i].text())
	}
}

func (e *Explanation) verdict() string {
	parts := suggest.Parts{e.Verdict}
	parts.Add(e.Reason != e.Verdict, "%s", e.Reason)
	parts.Add(e.Status != 0, "status %d", e.Status)
	parts.Add(e.RetryAfter > 0, "retry after %d s", e.RetryAfter)
	parts.Add(e.Held > 0, "held for %g s", e.Held)
	parts.Add(e.DecidedBy != "" && e.DecidedBy != "store", "decided by %s", e.DecidedBy)
	parts.Add(e.Error != "", "%s", e.Error)
	return strings.Join(parts, ", ") + " (nothing was charged)"
}
