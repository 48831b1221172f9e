package authz

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// checker collects the mistakes of a policy.
type checker struct {
	*Policy
	ratelimit.Mistakes
}

// Check returns the mistakes of the policy: what cannot work, what contradicts itself, and warnings of what has no effect.
func (p *Policy) Check() []ratelimit.Mistake {
	c := &checker{Policy: p}
	c.checkCredentials()
	c.checkRefusal("absent", p.Absent)
	c.checkRefusal("invalid", p.Invalid)
	c.checkAbsent()
	c.checkAccess()
	c.checkLimits("limits", p.Limits, "credential: {field: owner}")
	c.checkLimits("refused", p.Refused, aboutRefused)
	c.checkRefused()
	c.checkAnybody()
	c.checkGiven("limits", p.Limits, "`credential: {field: key_id}` or `{field: owner}`")
	c.checkGiven("refused", p.Refused, suggest.Quoted(aboutRefused))
	c.checkHeaders()
	c.checkKeepHeaders()
	return c.All()
}

// lacks reports a key that an object lacks.
func (c *checker) lacks(object, key, message, hint string) {
	c.Key(object+"."+key).Lacking().Fail(message, hint)
}

// below returns the paths of keys of an object.
func below(object string, keys ...string) []string {
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = object + "." + key
	}
	return paths
}

// oneOf returns the keys of an object that exclude each other, which have the tag oneof:"group", and those that are given.
func oneOf(object any, group string) (keys, given []string) {
	v := reflect.ValueOf(object)
	for _, field := range reflect.VisibleFields(v.Type()) {
		if name, _, _ := strings.Cut(field.Tag.Get("oneof"), ","); name != group {
			continue
		}
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		keys = append(keys, key)
		if !v.FieldByIndex(field.Index).IsZero() {
			given = append(given, key)
		}
	}
	return keys, given
}

// exactlyOne reports an object that has no key of a group, or more than one. It returns whether there is one. what is
// the object in messages.
func (c *checker) exactlyOne(what, path string, object any, group string) bool {
	keys, given := oneOf(object, group)
	if len(given) == 0 {
		c.At(path, below(path, keys...)...).Lacking().Fail(what+" without "+suggest.OneOf(keys), "add one of them")
	}
	c.atMostOne(path, object, group)
	return len(given) == 1
}

// atMostOne reports each key of a group but the first.
func (c *checker) atMostOne(path string, object any, group string) {
	_, given := oneOf(object, group)
	for _, key := range given[min(1, len(given)):] {
		c.Key(path+"."+key).Fail(suggest.Quoted(key)+" beside "+suggest.Quoted(given[0]), "keep one of them")
	}
}

// between reports a number that is out of bounds.
func (c *checker) between(object, key string, n, least, most int64) {
	if n < least || n > most {
		c.At(object+"."+key).Fail(fmt.Sprintf("%s cannot be `%d`", suggest.Quoted(key), n),
			fmt.Sprintf("want a whole number from %d to %d", least, most))
	}
}

// checkRefusal checks the answer to a request that may not pass.
func (c *checker) checkRefusal(key string, r *Refusal) {
	if r == nil {
		return
	}
	if r.Status != 0 {
		c.between(key, "status", int64(r.Status), 400, 599)
	}
	if r.TokenStatus != 0 {
		c.between(key, "token_status", int64(r.TokenStatus), 400, 599)
	}
	if r.Pass && r.Status != 0 {
		c.Key(key+".status").Fail("`status` beside `pass: true`", "what passes is not refused: delete one of them")
	}
	switch {
	case key == "absent" && r.TokenStatus != 0:
		c.Key("absent.token_status").Fail("`token_status` in `absent`",
			"a request without a credential has no token: write `token_status` in `invalid`")
	case key == "invalid" && r.Pass:
		c.Key("invalid.pass").Fail("an invalid credential cannot pass",
			"delete `pass`: who has no valid credential can leave it out, and `absent` answers that")
	}
}

// checkAbsent reports answers to a request without a credential that contradict each other.
func (c *checker) checkAbsent() {
	switch {
	case c.Anonymous == Deny || c.Absent == nil:
	case c.Absent.Pass:
		c.Key("absent").Warn("`absent: {pass: true}` beside `anonymous: allow`",
			"both let a request without a credential pass: delete one of them")
	default:
		c.Key("absent").Fail(
			"`absent` beside `anonymous: allow`", "a request without a credential passes, so it is never "+
				"refused: delete `absent` to let it pass, or `anonymous` to refuse it")
	}
}

// passes reports whether a request without a credential passes.
func (p *Policy) passes() bool { return p.Anonymous == Allow || p.Absent != nil && p.Absent.Pass }

// aboutRefused is an action that limits refused requests.
const aboutRefused = "remote_address: {key: refused_address}"

// checkRefused reports what has no meaning in `refused`: the identity of a request that has none, and limits that no
// request reaches.
func (c *checker) checkRefused() {
	for i, limit := range c.Refused {
		for k, action := range limit.Actions {
			if action.Credential != nil {
				path := ratelimit.Element(ratelimit.Element("refused", i)+".actions", k)
				c.Key(path+".credential").Fail("a refused request has no `credential`",
					"write what is known of its sender, such as "+suggest.Quoted(aboutRefused))
			}
		}
	}
	if c.Refused != nil && len(c.Credentials) == 0 && c.passes() {
		c.Key("refused", "credentials", "anonymous", "absent").Warn(
			"`refused` limits nothing: without `credentials`, no credential is absent or invalid",
			"add `credentials`, or delete `refused`")
	}
	if c.Refused == nil && c.sendsSecret() {
		c.Key("credentials", "refused").Warn("failed authentication is not limited: there is no `refused`",
			"add to `authz` `refused: [{actions: [{"+aboutRefused+"}]}]`", "add to `descriptors` "+
				"`- {key: refused_address, rate_limit: {unit: minute, requests_per_unit: 30, algorithm: token_bucket}}`")
	}
}

// checkAnybody reports a policy that no request satisfies, and scopes that no credential has.
func (c *checker) checkAnybody() {
	understood := []string{"credentials", "anonymous", "absent", "access"}
	opens := slices.ContainsFunc(c.Access, func(a Access) bool { return a.Require == Open })
	if len(c.Credentials) == 0 && !c.passes() && !opens {
		c.Key("", understood...).Lacking().Fail(
			"no request can pass: there are no `credentials`, and `anonymous` is `deny`",
			"add `credentials:`, for example `- api_key: {header: x-api-key}`",
			"or write `anonymous: allow`, to decide by access and limits only")
	}
	if c.sendsSecret() {
		return
	}
	for i := range c.Access {
		if len(c.Access[i].Scopes) > 0 {
			c.Key(ratelimit.Element("access", i)+".scopes", understood...).Warn(
				"nobody has a scope: there is no `api_key` or `jwt` in `credentials`",
				"this rule denies every request that it matches")
		}
	}
}

// checkGiven warns of actions that never have anything to give, so that a limit with one of them never holds, and of one
// that gives away a secret. instead is what to write for that.
func (c *checker) checkGiven(list string, limits []RateLimit, instead string) {
	keys := slices.ContainsFunc(c.Credentials, func(one Credential) bool { return one.APIKey != nil })
	tokens := slices.ContainsFunc(c.Credentials, func(one Credential) bool { return one.JWT != nil })
	paths := slices.ContainsFunc(c.Access, func(a Access) bool { return a.Path != nil })
	for i, limit := range limits {
		for k, action := range limit.Actions {
			path := ratelimit.Element(ratelimit.Element(list, i)+".actions", k)
			if action.Path != nil && !paths {
				c.Key(path+".path", "access").Warn("this gives `*` for every path: no rule of access has a `path`",
					"the entry is the pattern of the rule that matches the request, so that clients cannot make up new ones")
			}
			if h := action.RequestHeaders; h != nil && c.brings(text(h.Header)) {
				c.At(path+".request_headers.header", "credentials").Warn(
					"a credential is in "+suggest.Quoted(*h.Header)+": it would be part of the name of a bucket",
					"names of buckets are not secret: write "+instead+" instead")
			}
			if a := action.Credential; a != nil && c.Credentials != nil && a.Default == "" {
				at := c.At(path+".credential.field", "credentials")
				const hint = "without a `default` this limit never holds"
				switch field := text(a.Field); {
				case strings.HasPrefix(field, "label.") && !keys:
					at.Warn("nothing has labels: there is no `api_key` in `credentials`", hint)
				case strings.HasPrefix(field, "claim.") && !tokens:
					at.Warn("nothing has claims: there is no `jwt` in `credentials`", hint)
				}
			}
		}
	}
}

// text is a text, "" for one that is absent.
func text(s *string) string { return textOr(s, "") }
