package authz

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// checker collects the mistakes of a policy.
type checker struct {
	*Policy
	ratelimit.Mistakes
	lists networks.Lists
}

// Check returns the mistakes of the policy: settings that cannot work. Settings without an effect are warnings.
func (p *Policy) Check() []ratelimit.Mistake {
	c := &checker{Policy: p}
	c.checkTags("", reflect.ValueOf(*p))
	c.checkCredentials()
	c.checkAnswers()
	c.checkAccess()
	c.checkLimits("limits", p.Limits, "credential: {field: owner}", "`credential: {field: key_id}` or `{field: owner}`")
	c.checkLimits("refused", p.Refused, aboutRefused, suggest.Quoted(aboutRefused))
	c.checkRefused()
	c.checkReachable()
	c.checkHeaders()
	c.checkKeepHeaders()
	c.checkQuotaPath()
	return c.All()
}

// below returns the paths of keys of an object.
func below(object string, keys ...string) []string {
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = object + "." + key
	}
	return paths
}

func (c *checker) checkAnswers() {
	absent, invalid := cmp.Or(c.Absent, new(Refusal)), cmp.Or(c.Invalid, new(Refusal))
	for i, r := range []*Refusal{absent, invalid} {
		if r.Pass && r.Status != 0 {
			c.Key([]string{"absent", "invalid"}[i]+".status").Fail(
				"`status` beside `pass: true`", "a request that passes has no such status: delete one of them")
		}
	}
	if absent.TokenStatus != 0 {
		c.Key("absent.token_status").Fail("`token_status` in `absent`",
			"a request without a credential has no token: write `token_status` in `invalid`")
	}
	if invalid.Pass {
		c.Key("invalid.pass").Fail("an invalid credential cannot pass",
			"delete `pass`: a client can send no credential instead, and `absent` answers such a request")
	}
	switch {
	case c.Anonymous == Deny || c.Absent == nil:
	case absent.Pass:
		c.Key("absent").Warn("`absent: {pass: true}` beside `anonymous: allow`",
			"both let a request without a credential pass: delete one of them")
	default:
		c.Key("absent").Fail("`absent` beside `anonymous: allow`", "a request without a credential passes, so it is never "+
			"refused: delete `absent` to let it pass, or `anonymous` to refuse it")
	}
}

// passes reports whether a request without a credential passes.
func (p *Policy) passes() bool { return p.Anonymous == Allow || p.Absent != nil && p.Absent.Pass }

// aboutRefused is an action that limits refused requests.
const aboutRefused = "remote_address: {key: refused_address}"

// checkRefused reports limits of refused requests that no request reaches, and a policy that lacks such limits.
func (c *checker) checkRefused() {
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

// checkReachable reports a policy that no request satisfies, and scopes that no credential has.
func (c *checker) checkReachable() {
	understood := []string{"credentials", "anonymous", "absent", "access"}
	opens := slices.ContainsFunc(c.Access, func(a Access) bool { return a.Require == Open })
	if len(c.Credentials) == 0 && !c.passes() && !opens {
		c.Key("", understood...).Lacking().Fail(
			"no request can pass: there are no `credentials`, and `anonymous` is `deny`",
			"add `credentials:`, for example `- api_key: {header: x-api-key}`",
			"or write `anonymous: allow`, to decide by access and limits only")
	}
	if c.gives("scope") {
		return
	}
	for i := range c.Access {
		if len(c.Access[i].Scopes) > 0 {
			c.Key(ratelimit.Element("access", i)+".scopes", understood...).Warn(
				"no credential has a scope: there is no "+kindsThatGive("scope")+" in `credentials`",
				"this rule denies every request that it matches")
		}
	}
}

// maxLimits is the largest number of descriptors of a request: one call of the store decides all of them.
const maxLimits = 64

// checkLimits checks limits. example is an action; instead is the remedy for one that shows a secret.
func (c *checker) checkLimits(list string, limits []RateLimit, example, instead string) {
	for i := range limits {
		l, path := &limits[i], ratelimit.Element(list, i)
		if i == maxLimits {
			c.At(path).Fail(fmt.Sprintf("more than %d limits", maxLimits), "each is decided for every request: join some")
			return
		}
		switch {
		case l.Actions == nil:
			c.Key(path+".actions").Lacking().Fail("a limit without `actions`",
				"add "+suggest.Quoted("actions: [{"+example+"}]")+": each action gives one entry of a descriptor")
		case len(l.Actions) == 0:
			c.Key(path+".actions").Fail("`actions` is empty",
				"add one, for example "+suggest.Quoted("- "+example)+": each action gives one entry of a descriptor")
		case l.repeats(limits[:i]):
			c.Key(path+".actions").Warn("an earlier limit has the same `actions`: a request charges its bucket twice",
				"delete one of the limits, and set `cost` if a request costs more than 1")
		}
		c.checkCost(path+".cost", &l.Cost)
		if list == "refused" && l.Hold != nil {
			c.Key(path+".hold").Fail("a refused request holds nothing", "delete `hold`: nothing would settle it")
		}
		for k := range l.Actions {
			action, at := &l.Actions[k], ratelimit.Element(path+".actions", k)
			c.checkAction(at, action)
			c.checkGiven(at, action, instead)
			if list == "refused" && action.Credential != nil {
				c.Key(at+".credential").Fail("a refused request has no `credential`",
					"write an action that needs none, such as "+suggest.Quoted(aboutRefused))
			}
		}
	}
}

// repeats reports whether an earlier limit has the same actions. An action with a mistake may be the zero value.
func (l *RateLimit) repeats(earlier []RateLimit) bool {
	isZero := func(a Action) bool { return reflect.ValueOf(a).IsZero() }
	same := func(e RateLimit) bool { return reflect.DeepEqual(e.Actions, l.Actions) }
	return !slices.ContainsFunc(l.Actions, isZero) && slices.ContainsFunc(earlier, same)
}

func (c *checker) checkAction(path string, a *Action) {
	if a.RemoteAddress != nil {
		c.checkAddress(path+".remote_address", a.RemoteAddress)
	}
	if a.Metadata != nil && len(a.Metadata.Path) == 1 {
		c.At(path+".metadata.path").Fail("`path` names a namespace only", wantMetadata)
	}
	if a.Credential == nil || a.Credential.Field == nil {
		return
	}
	words, field := []string{"owner", "plan", "key_id", "method"}, a.Credential.Field.String()
	kind, name, _ := strings.Cut(field, ".")
	named := name != "" && !strings.Contains(name, "<")
	switch {
	case field == "":
		c.At(path+".credential.field").Fail("`field` is empty", wantField)
	case slices.Contains(words, field), kind == "label" && named:
	case kind == "claim" && named:
		a.Credential.Field.Check(&c.Mistakes, path+".credential.field")
	default:
		c.At(path+".credential.field").Fail(
			"a credential has no field "+suggest.Quoted(field), suggest.DidYouMean(field, words), wantField)
	}
}

// checkGiven warns of an action that never gives a value, or that shows a secret: instead is the remedy.
func (c *checker) checkGiven(path string, action *Action, instead string) {
	hasPath := func(a Access) bool { return a.Path != nil }
	if action.Path != nil && !slices.ContainsFunc(c.Access, hasPath) {
		c.Key(path+".path", "access").Warn("this gives `*` for every path: no access rule has a `path`",
			"the entry is the pattern of the rule that matches the request, so that clients cannot make up new ones")
	}
	if h := action.RequestHeaders; h != nil && c.brings(text(h.Header)) {
		c.At(path+".request_headers.header", "credentials").Warn(
			"a credential is in "+suggest.Quoted(*h.Header)+": it would be part of the name of a bucket",
			"names of buckets are not secret: write "+instead+" instead")
	}
	a := action.Credential
	if a == nil || c.Credentials == nil || a.Default != "" {
		return
	}
	at := c.At(path+".credential.field", "credentials")
	const hint = "without a `default`, this limit never applies"
	word, _, dotted := strings.Cut(a.Field.String(), ".")
	if dotted && (word == "label" || word == "claim") && !c.gives(word) {
		at.Warn("no credential has "+word+"s: there is no "+kindsThatGive(word)+" in `credentials`", hint)
	}
}

func text(s *string) string { return textOr(s, "") }
