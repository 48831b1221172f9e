package authz

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// checkHeaderName reports a text that cannot be the name of a header.
func (c *checker) checkHeaderName(path, name string) {
	switch {
	case name == "":
		c.At(path).Fail("the name of a header is empty", "write a name such as `x-api-key`")
	case strings.HasPrefix(name, ":"):
		c.At(path).Fail(suggest.Quoted(name)+" is a pseudo-header of HTTP/2, not a header",
			"`access` and `actions` have their own keys for method, host and path")
	case !httpguts.ValidHeaderFieldName(name):
		c.At(path).Fail(
			suggest.Quoted(name)+" cannot be the name of a header", "want letters, digits and `-`, such as `x-api-key`")
	}
}

// otherMeaning are headers that mean something else to an upstream.
var otherMeaning = [...]string{"host", "content-length", "content-type", "content-encoding", "cookie", "authorization"}

// identityHeaderKeys are the keys of IdentityHeaders, in the order of Names.
var identityHeaderKeys = [...]string{"owner", "plan", "method", "key_id"}

// given returns the headers as the policy has them, in the order of Names; nil for a default.
func (h *IdentityHeaders) given() [len(identityHeaderKeys)]*OptionalHeader {
	h = cmp.Or(h, new(IdentityHeaders))
	return [...]*OptionalHeader{h.Owner, h.Plan, h.Method, h.KeyID}
}

// Names returns the names with their defaults, in lower case, "" for none: owner, plan, method, ID of the key.
func (h *IdentityHeaders) Names() [len(identityHeaderKeys)]string {
	names := [...]string{"x-auth-owner", "x-auth-plan", "x-auth-method", "x-auth-key-id"}
	for i, name := range h.given() {
		if name != nil {
			names[i] = strings.ToLower(string(*name))
		}
	}
	return names
}

// checkHeaders checks the identity headers. A mistake in a default is at the section, or at the header with its name.
func (c *checker) checkHeaders() {
	names, given, keys := c.Headers.Names(), c.Headers.given(), identityHeaderKeys
	for i, name := range names {
		path := "headers." + keys[i]
		k := slices.Index(names[:i], name)
		switch {
		case name == "":
		case k >= 0 && given[i] == nil:
			c.At("headers."+keys[k]).Fail(suggest.Quoted(name)+" is the header of "+suggest.Quoted(keys[i])+" already",
				"give each its own name, or write "+suggest.Quoted(keys[i]+": off"))
		case k >= 0:
			c.At(path).Fail(suggest.Quoted(name)+" is the header of "+suggest.Quoted(keys[k])+" already",
				"give each its own name; `off` sends none")
		case given[i] != nil && !httpguts.ValidHeaderFieldName(name):
			c.checkHeaderName(path, name)
		case given[i] != nil:
			c.checkIdentityHeader(c.At(path), name)
		default:
			c.checkIdentityHeader(c.Key(""), name)
		}
	}
}

// checkIdentityHeader reports a name that cannot carry an identity to the upstream, or has another meaning there.
func (c *checker) checkIdentityHeader(at ratelimit.Spot, name string) {
	why, remedy := "", "choose a name such as `x-auth-owner`"
	switch {
	case credential.EndsAtProxy(name):
		why = "it ends at the next proxy and never reaches the upstream"
	case slices.Contains(otherMeaning[:], name):
		why = "it means something else to the upstream"
	case slices.Contains(secondHeaders[:], name) && (!namesPath(name) || c.judgesPath()):
		why = "applications read another path, host or method from it"
	case strings.HasPrefix(name, "x-envoy-"), name == forwardedFor:
		why = "Envoy sets it itself"
	case c.brings(name):
		why = "a credential is in it"
		remedy = "choose another header for the credential, or for this under `headers:`"
	default:
		return
	}
	at.Fail(suggest.Quoted(name)+" cannot be an identity header: "+why, remedy)
}

// namesPath reports whether a header may also name an identity: few applications read their own path from it.
func namesPath(header string) bool { return header == "x-path" || header == "x-uri" }

// judgesPath reports whether the path of a request changes a decision: by an access rule, or by a limit.
func (p *Policy) judgesPath() bool {
	hasPath := func(a Action) bool { return a.Path != nil }
	return len(p.Access) > 0 || slices.ContainsFunc(slices.Concat(p.Limits, p.Refused), func(l RateLimit) bool {
		return len(l.Cost.Rules) > 0 || slices.ContainsFunc(l.Actions, hasPath)
	})
}

// checkKeepHeaders reports headers that are never removed.
func (c *checker) checkKeepHeaders() {
	known := secondHeaders[:]
	for i, name := range c.KeepHeaders {
		if lower := strings.ToLower(name); !slices.Contains(known, lower) {
			c.At(ratelimit.Element("keep_headers", i)).Fail(
				suggest.Quoted(name)+" is not one of the headers that are removed",
				suggest.DidYouMean(lower, known), "want one of "+suggest.OneOf(known))
		}
	}
}
