package authz

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// checkHeaderName reports what cannot be the name of a header.
func (c *checker) checkHeaderName(path, name string) {
	switch {
	case name == "":
		c.fail(path, "the name of a header is empty", "write a name such as `x-api-key`")
	case strings.HasPrefix(name, ":"):
		c.fail(path, suggest.Quoted(name)+" is a pseudo-header of HTTP/2, not a header",
			"method, host and path have keys of their own in `access` and `actions`")
	case !isToken(name):
		c.fail(path, suggest.Quoted(name)+" cannot be the name of a header", "want letters, digits and `-`, such as `x-api-key`")
	}
}

// isToken reports whether a text is a token of RFC 9110, 5.6.2, as the names of headers, methods and schemes are.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// hopByHop are the headers that end at the next proxy (RFC 9110, 7.6.1), whatever this service sets.
var hopByHop = [...]string{
	"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
	"upgrade",
}

// meansElse are headers that mean something else to an upstream than who calls.
var meansElse = [...]string{"host", "content-length", "content-type", "content-encoding", "cookie", "authorization"}

// identityHeader is one of the IdentityHeaders.
type identityHeader struct {
	key   string
	given bool
	name  string // in lower case, "" for none
}

// all returns the headers with their defaults.
func (h *IdentityHeaders) all() [4]identityHeader {
	if h == nil {
		h = new(IdentityHeaders)
	}
	list := [...]identityHeader{
		{key: "owner", name: "x-auth-owner"}, {key: "plan", name: "x-auth-plan"}, {key: "method", name: "x-auth-method"},
		{key: "key_id", name: "x-auth-key-id"},
	}
	for i, name := range []*OptionalHeader{h.Owner, h.Plan, h.Method, h.KeyID} {
		if name != nil {
			list[i].given, list[i].name = true, strings.ToLower(string(*name))
		}
	}
	return list
}

// Names returns the names with their defaults, in lower case, "" for none: of the headers with the owner, the plan, the method and the
// ID of the key.
func (h *IdentityHeaders) Names() [4]string {
	var names [4]string
	for i, one := range h.all() {
		names[i] = one.name
	}
	return names
}

// checkHeaders checks the names under which the upstream is told who calls. What is wrong with a default is reported for the section.
func (c *checker) checkHeaders() {
	all := c.Headers.all()
	for i, h := range all {
		path := "headers." + h.key
		k := slices.IndexFunc(all[:i], func(other identityHeader) bool { return other.name == h.name })
		switch {
		case h.name == "":
		case k >= 0 && !h.given: // the default of this one is the name of an earlier one
			c.fail("headers."+all[k].key, suggest.Quoted(h.name)+" is the header of "+suggest.Quoted(h.key)+" already",
				"give them names of their own, or write "+suggest.Quoted(h.key+": off"))
		case k >= 0:
			c.fail(path, suggest.Quoted(h.name)+" is the header of "+suggest.Quoted(all[k].key)+" already",
				"give them names of their own; `off` sends none")
		case h.given:
			c.checkIdentityHeader(c.fail, path, h.name)
		default:
			c.checkIdentityHeader(c.failKey, "", h.name)
		}
	}
}

// checkIdentityHeader reports names under which nothing could be told to the upstream, or something else is told.
func (c *checker) checkIdentityHeader(fail func(path, message string, hints ...string), path, name string) {
	const remedy = "choose a name such as `x-auth-owner`"
	cannot := func(why, remedy string) { fail(path, suggest.Quoted(name)+" cannot tell who calls: "+why, remedy) }
	switch {
	case !isToken(name):
		c.checkHeaderName(path, name)
	case slices.Contains(hopByHop[:], name):
		cannot("it ends at the next proxy and never reaches the upstream", remedy)
	case slices.Contains(meansElse[:], name):
		cannot("it means something else to the upstream", remedy)
	case slices.Contains(overrideHeaders[:], name):
		cannot("applications read another path, host or method from it", remedy)
	case strings.HasPrefix(name, "x-envoy-"), name == forwardedFor:
		cannot("Envoy sets it itself", remedy)
	case c.brings(name):
		cannot("a credential is in it, and credentials do not reach the upstream",
			"give the credential or this another header, under `headers:`")
	}
}

// checkKeepHeaders checks the headers that stay on requests although applications may read another path, host or method from them.
func (c *checker) checkKeepHeaders() {
	known := overrideHeaders[:]
	for i, name := range c.KeepHeaders {
		if lower := strings.ToLower(name); !slices.Contains(known, lower) {
			c.fail(element("keep_headers", i), suggest.Quoted(name)+" is not one of the headers that are removed",
				suggest.DidYouMean(lower, known), "want one of "+suggest.OneOf(known))
		}
	}
}
