package rulefile

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
)

// policy makes the policy of the `authz:` section of a file.
func (b builder) policy(section given[authzKeys]) *authz.Policy {
	a := section.value
	p := &authz.Policy{
		Credentials: b.credentials(a.credentials.value),
		Anonymous:   a.anonymous.or(false),
		Absent:      b.refusal(a.absent.value, 401),
		Invalid:     b.refusal(a.invalid.value, 403),
		Preflight:   a.preflight.or(false),
		UnsafePaths: a.unsafePaths.or(false),
		Access:      b.access(a.access.value, a.unsafePaths.or(false)),
		Limits:      b.requestLimits(a.limits.value, "credential: {field: owner}"),
		Refused:     b.requestLimits(a.refused.value, aboutRefused),
		KeepHeaders: b.keepHeaders(a.keepHeaders.value),
		Position:    b.position(section.key),
	}
	p.Headers = b.identityHeaders(a.headers.value, section.key, p.Credentials)
	if a.invalid.value.pass.or(false) {
		b.fail(a.invalid.value.pass.key, "an invalid credential cannot pass", "delete `pass`: who has no valid credential can leave it out, and `absent` answers that")
	}
	b.checkAbsent(a)
	b.checkRefused(a, p)
	b.checkAnybody(section, p)
	b.checkGiven(a, p)
	return p
}

// refusal makes the answer to a request that may not pass.
func (b builder) refusal(r refusalKeys, byDefault int) authz.Refusal {
	if !r.pass.or(false) {
		return authz.Refusal{Status: int(r.status.or(int64(byDefault)))}
	}
	if r.status.mentioned {
		b.fail(r.status.key, "`status` beside `pass: true`", "what passes is not refused: delete one of them")
	}
	return authz.Refusal{Pass: true}
}

// checkAbsent reports answers to a request without a credential that contradict each other.
func (b builder) checkAbsent(a authzKeys) {
	absent := a.absent.value
	switch {
	case !a.anonymous.or(false) || !a.absent.set:
	case absent.pass.or(false):
		b.warn(a.absent.key, "`absent: {pass: true}` beside `anonymous: allow`", "both let a request without a credential pass: delete one of them")
	default:
		b.fail(a.absent.key, "`absent` beside `anonymous: allow`",
			"a request without a credential passes, so it is never refused: delete `absent` to let it pass, or `anonymous` to refuse it")
	}
}

// aboutRefused is an action that limits refused requests.
const aboutRefused = "remote_address: {key: refused_address}"

// checkRefused reports what has no meaning in `refused`: the identity of a request that has none, and limits that no
// request can reach.
func (b builder) checkRefused(a authzKeys, p *authz.Policy) {
	for _, limit := range a.refused.value {
		for _, action := range limit.actions.value {
			if action.credential.mentioned {
				b.fail(action.credential.key, "a refused request has no `credential`",
					"write what is known of its sender, such as "+quoted(aboutRefused))
			}
		}
	}
	understood := a.credentials.set == a.credentials.mentioned && a.anonymous.set == a.anonymous.mentioned &&
		a.absent.set == a.absent.mentioned
	if understood && a.refused.set && len(p.Credentials) == 0 && (p.Anonymous || p.Absent.Pass) {
		b.warn(a.refused.key, "`refused` limits nothing: without `credentials`, no credential is absent or invalid",
			"add `credentials`, or delete `refused`")
	}
	sent := func(c authz.Credential) bool { return c.MTLS == nil } // a client certificate cannot be guessed
	if !a.refused.mentioned && slices.ContainsFunc(p.Credentials, sent) {
		b.warn(a.credentials.key, "failed authentication is not limited: there is no `refused`",
			"add to `authz` `refused: [{actions: [{"+aboutRefused+"}]}]`",
			"add to `descriptors` `- {key: refused_address, rate_limit: {unit: minute, requests_per_unit: 30, algorithm: token_bucket}}`")
	}
}

// checkAnybody reports a policy that nobody can satisfy, and rules that nobody is asked for.
func (b builder) checkAnybody(section given[authzKeys], p *authz.Policy) {
	a := section.value
	understood := !b.strange[section.at] && a.credentials.set == a.credentials.mentioned && a.anonymous.set == a.anonymous.mentioned &&
		a.absent.set == a.absent.mentioned && a.access.set == a.access.mentioned
	opens := slices.ContainsFunc(p.Access, func(rule authz.Access) bool { return rule.Require == authz.Open })
	if understood && len(a.credentials.value) == 0 && !p.Anonymous && !p.Absent.Pass && !opens {
		b.fail(section.key, "no request can pass: there are no `credentials`, and `anonymous` is `deny`",
			"add `credentials:`, for example "+quoted("- api_key: {header: x-api-key}"), "or write `anonymous: allow`, to decide by access and limits only")
	}
	grants := func(c authz.Credential) bool { return c.MTLS == nil }
	if understood && !slices.ContainsFunc(p.Credentials, grants) {
		for _, rule := range a.access.value {
			if len(rule.scopes.value) > 0 {
				b.warn(rule.scopes.key, "nobody has a scope: there is no `api_key` or `jwt` in `credentials`", "this rule denies every request that it matches")
			}
		}
	}
}

// checkGiven warns of actions that never have anything to give, so that a limit with one of them never holds, and of one that gives
// away a secret.
func (b builder) checkGiven(a authzKeys, p *authz.Policy) {
	have := func(is func(authz.Credential) bool) bool { return slices.ContainsFunc(p.Credentials, is) }
	keys := have(func(c authz.Credential) bool { return c.APIKey != nil })
	tokens := have(func(c authz.Credential) bool { return c.JWT != nil })
	paths := slices.ContainsFunc(p.Access, func(rule authz.Access) bool { return rule.Path != authz.PathPattern{} })
	for i, limit := range slices.Concat(a.limits.value, a.refused.value) {
		instead := "`credential: {field: key_id}` or `{field: owner}`"
		if i >= len(a.limits.value) {
			instead = quoted(aboutRefused)
		}
		for _, action := range limit.actions.value {
			field, header := action.credential.value.field, action.requestHeaders.value.header
			switch {
			case action.path.set && !paths && a.access.set == a.access.mentioned:
				b.warn(action.path.key, "this gives `*` for every path: no rule of access has a `path`",
					"the entry is the pattern of the rule that matches the request, so that clients cannot make up new ones")
			case header.set && brought(p.Credentials, strings.ToLower(header.value)):
				b.warn(header.at, "a credential is in "+quoted(header.value)+": it would be part of the name of a bucket",
					"names of buckets are not secret: write "+instead+" instead")
			case !a.credentials.set || action.credential.value.fallback.value != "":
			case strings.HasPrefix(field.value, "label.") && !keys:
				b.warn(field.at, "nothing has labels: there is no `api_key` in `credentials`", "without a `default` this limit never holds")
			case strings.HasPrefix(field.value, "claim.") && !tokens:
				b.warn(field.at, "nothing has claims: there is no `jwt` in `credentials`", "without a `default` this limit never holds")
			}
		}
	}
}

// brought reports whether a header holds one of the credentials.
func brought(credentials []authz.Credential, header string) bool {
	return slices.ContainsFunc(credentials, func(c authz.Credential) bool {
		s := sourceOf(c)
		return s.Header == header || s.Scheme != "" && header == "authorization" || s.Cookie != "" && header == "cookie"
	})
}
