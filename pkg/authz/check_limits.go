package authz

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// maxLimits is how many descriptors a request can have: all of them are decided together, in one call of the store.
const maxLimits = 64

// maxHits is the most that Envoy takes for hits_addend.
const maxHits = 1_000_000_000

// checkLimits checks what requests are limited by. example is an action of such a limit, for messages.
func (c *checker) checkLimits(list string, limits []RateLimit, example string) {
	for i := range limits {
		l, path := &limits[i], ratelimit.Element(list, i)
		if i == maxLimits {
			c.At(path).Fail(
				fmt.Sprintf("more than %d limits", maxLimits), "each is decided for every request: join some")
			return
		}
		c.checkHits(path+".hits_addend", l.Hits)
		switch {
		case l.Actions == nil:
			c.lacks(path, "actions", "a limit without `actions`",
				"add "+suggest.Quoted("actions: [{"+example+"}]")+": each action gives one entry of a descriptor")
		case len(l.Actions) == 0:
			c.Key(path+".actions").Fail("`actions` is empty",
				"add one, for example "+suggest.Quoted("- "+example)+": each gives one entry of a descriptor")
		}
		for k := range l.Actions {
			c.checkAction(ratelimit.Element(path+".actions", k), &l.Actions[k])
		}
	}
}

// checkHits checks the cost of a request.
func (c *checker) checkHits(path string, h HitsAddend) {
	c.atMostOne(path, h, "cost")
	if h.Extension != nil && *h.Extension == "" {
		c.At(path+".extension").Fail(
			"the name of the context extension is empty", "write the key that `context_extensions` of the route have")
	}
	if h.Number != 0 {
		c.between(path, "number", h.Number, 1, maxHits)
	}
	if h.Header != nil {
		c.checkHeaderName(path+".header", *h.Header)
	}
}

// checkAction checks what gives one entry of a descriptor.
func (c *checker) checkAction(path string, a *Action) {
	c.exactlyOne("an element of `actions`", path, *a, "action")
	if x := a.Credential; x != nil {
		c.checkField(path+".credential", x.Field)
		c.checkKey(path+".credential", x.Key, true)
	}
	if x := a.RequestHeaders; x != nil {
		c.checkActionHeader(path+".request_headers", x.Header)
		c.checkKey(path+".request_headers", x.Key, false)
	}
	if x := a.RemoteAddress; x != nil {
		c.between(path+".remote_address", "trusted_hops", int64(x.TrustedHops), 0, 100)
		c.between(path+".remote_address", "ipv4_mask", int64(x.IPv4Mask), 0, 32)
		c.between(path+".remote_address", "ipv6_mask", int64(x.IPv6Mask), 0, 128)
		c.checkKey(path+".remote_address", x.Key, true)
	}
	if x := a.GenericKey; x != nil {
		c.require(path+".generic_key", "value", x.Value, "add `value: <what the entry always says>`")
		c.checkKey(path+".generic_key", x.Key, true)
	}
	if x := a.HeaderValueMatch; x != nil {
		at := path + ".header_value_match"
		c.checkActionHeader(at, x.Header)
		c.require(at, "value", x.Value, "add `value: <what the entry says when the header matches>`")
		if x.Pattern != nil && *x.Pattern == "" {
			c.At(at+".pattern").Fail(
				"`pattern` is empty", "`*` stands for any characters; without `pattern` the header has to be there")
		}
		c.checkKey(at, x.Key, true)
	}
	if x := a.QueryParameter; x != nil {
		c.require(path+".query_parameter", "parameter", x.Parameter, "add `parameter: <its name in the query>`")
		c.checkKey(path+".query_parameter", x.Key, false)
	}
	if x := a.Metadata; x != nil {
		const want = "want the namespace of an Envoy filter and the keys below it, such as `[envoy.filters.http.jwt_authn, payload, plan]`"
		switch len(x.Path) {
		case 0:
			c.lacks(path+".metadata", "path", "this action lacks `path`", want)
		case 1:
			c.At(path+".metadata.path").Fail("`path` names a namespace only", want)
		}
		c.checkKey(path+".metadata", x.Key, false)
	}
	if x := a.Method; x != nil {
		c.checkKey(path+".method", x.Key, true)
	}
	if x := a.Host; x != nil {
		c.checkKey(path+".host", x.Key, true)
	}
	if x := a.Path; x != nil {
		c.checkKey(path+".path", x.Key, true)
	}
}

// checkKey checks the key of the entry that an action gives, which may have a default.
func (c *checker) checkKey(action string, key *string, hasDefault bool) {
	switch {
	case key != nil && *key == "":
		c.At(action+".key").Fail("the key of an entry is empty", "write the `key` of a descriptor under `descriptors:`")
	case key == nil && !hasDefault:
		c.require(action, "key", key, "add `key: <the key of a descriptor under descriptors>`")
	}
}

// require reports an action that lacks a key.
func (c *checker) require(action, key string, text *string, remedy string) {
	switch {
	case text == nil:
		c.lacks(action, key, "this action lacks "+suggest.Quoted(key), remedy)
	case *text == "":
		c.At(action+"."+key).Fail(suggest.Quoted(key)+" is empty", remedy)
	}
}

func (c *checker) checkActionHeader(action string, name *string) {
	if name == nil {
		c.require(action, "header", name, "add `header: <its name>`")
		return
	}
	c.checkHeaderName(action+".header", *name)
}

// checkField checks which field of a credential an action gives.
func (c *checker) checkField(action string, field *string) {
	words := []string{"owner", "plan", "key_id", "method", "label.<name>", "claim.<name>"}
	kind, name, dotted := strings.Cut(text(field), ".")
	switch {
	case text(field) == "":
		c.require(action, "field", field, "want one of "+suggest.OneOf(words))
	case slices.Contains(words[:4], *field):
	case dotted && (kind == "label" || kind == "claim") && name != "" && !strings.Contains(name, "<"):
	default:
		c.At(action+".field").Fail(
			"a credential has no field "+suggest.Quoted(*field), suggest.DidYouMean(*field, words[:4]),
			"want one of "+suggest.OneOf(words))
	}
}
