package rulefile

import (
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// The schema of the `authz:` section of a rule file. A new key is one field of a type of authz and one row here.

func authzSchema() object[authz.Policy] {
	return object[authz.Policy]{
		section{
			name:    "`authz`",
			where:   "in `authz`",
			belongs: "it belongs directly in `authz:`",
			example: "authz: {anonymous: allow}",
			part:    "authz",
		},
		[]key[authz.Policy]{
			put("credentials", credentialList, func(p *authz.Policy) *[]authz.Credential { return &p.Credentials }),
			put("anonymous", words[authz.Permission], func(p *authz.Policy) *authz.Permission { return &p.Anonymous }),
			maybe("absent", one(refusalSchema), func(p *authz.Policy) **authz.Refusal { return &p.Absent }),
			maybe("invalid", one(refusalSchema), func(p *authz.Policy) **authz.Refusal { return &p.Invalid }),
			put("preflight", words[authz.Permission], func(p *authz.Policy) *authz.Permission { return &p.Preflight }),
			put("unsafe_paths", words[authz.Permission], func(p *authz.Policy) *authz.Permission { return &p.UnsafePaths }),
			put("access", accessList, func(p *authz.Policy) *[]authz.Access { return &p.Access }),
			put("limits", limitsOf("limits"), func(p *authz.Policy) *[]authz.RateLimit { return &p.Limits }),
			put("refused", limitsOf("refused"), func(p *authz.Policy) *[]authz.RateLimit { return &p.Refused }),
			maybe("headers", one(identityHeaderSchema), func(p *authz.Policy) **authz.IdentityHeaders { return &p.Headers }),
			put("keep_headers", texts, func(p *authz.Policy) *[]string { return &p.KeepHeaders }),
		},
	}
}

func credentialSchema() object[authz.Credential] {
	return object[authz.Credential]{
		section{
			name:    "an element of `credentials`",
			where:   "in an element of `credentials`",
			belongs: "it belongs in an element of `credentials:`",
			example: "- api_key: {header: x-api-key}",
			part:    "authz",
		},
		[]key[authz.Credential]{
			maybe("api_key", one(apiKeySchema), func(c *authz.Credential) **authz.APIKey { return &c.APIKey }),
			maybe("jwt", one(jwtSchema), func(c *authz.Credential) **authz.JWT { return &c.JWT }),
			maybe("mtls", one(mtlsSchema), func(c *authz.Credential) **authz.MTLS { return &c.MTLS }),
		},
	}
}

func apiKeySchema() object[authz.APIKey] {
	return object[authz.APIKey]{
		section{
			name:    "`api_key`",
			where:   "in `api_key`",
			belongs: "it belongs inside `api_key:`",
			example: "api_key: {header: x-api-key}",
			part:    "authz",
			remarks: map[string]string{"key": neverHere, "keys": neverHere, "value": neverHere, "secret": neverHere},
		},
		sourceRows(func(a *authz.APIKey) *authz.Source { return &a.Source }),
	}
}

// neverHere says where API keys are.
const neverHere = "no key is ever in a rule file: `extauthz keys create` makes one, and only a hash of it is kept"

// sourceRows are the rows of the keys that say where in a request a credential is.
func sourceRows[T any](source func(*T) *authz.Source) []key[T] {
	return []key[T]{
		maybe("header", text, func(t *T) **string { return &source(t).Header }),
		maybe("scheme", text, func(t *T) **string { return &source(t).Scheme }),
		maybe("query", text, func(t *T) **string { return &source(t).Query }),
		maybe("cookie", text, func(t *T) **string { return &source(t).Cookie }),
	}
}

func jwtSchema() object[authz.JWT] {
	return object[authz.JWT]{
		section{
			name:    "`jwt`",
			where:   "in `jwt`",
			belongs: "it belongs inside `jwt:`",
			example: "jwt: {issuer: https://idp.example, audiences: [shop], algorithms: [RS256], jwks_url: https://idp.example/keys}",
			part:    "authz",
		},
		append(sourceRows(func(j *authz.JWT) *authz.Source { return &j.Source }),
			maybe("issuer", text, func(j *authz.JWT) **string { return &j.Issuer }),
			put("audiences", texts, func(j *authz.JWT) *[]string { return &j.Audiences }),
			put("algorithms", texts, func(j *authz.JWT) *[]string { return &j.Algorithms }),
			put("leeway", duration, func(j *authz.JWT) *time.Duration { return &j.Leeway }),
			maybe("jwks_file", text, func(j *authz.JWT) **string { return &j.JWKSFile }),
			maybe("jwks_url", text, func(j *authz.JWT) **string { return &j.JWKSURL }),
			maybe("owner_claim", text, func(j *authz.JWT) **string { return &j.OwnerClaim }),
			put("plan_claim", text, func(j *authz.JWT) *string { return &j.PlanClaim }),
			put("scopes_claim", text, func(j *authz.JWT) *string { return &j.ScopesClaim }),
		),
	}
}

func mtlsSchema() object[authz.MTLS] {
	return object[authz.MTLS]{
		section{
			name:    "`mtls`",
			where:   "in `mtls`",
			belongs: "it belongs inside `mtls:`",
			example: `mtls: {principals: ["spiffe://example.org/ns/*/sa/*"]}`,
			part:    "authz",
		},
		[]key[authz.MTLS]{
			put("principals", texts, func(m *authz.MTLS) *[]string { return &m.Principals }),
		},
	}
}

func refusalSchema() object[authz.Refusal] {
	return object[authz.Refusal]{
		section{
			name:    "a refusal",
			where:   "in a refusal",
			belongs: "it belongs inside `absent:` or `invalid:`",
			example: "{status: 401}",
			part:    "authz",
		},
		[]key[authz.Refusal]{
			put("status", between[int](400, 599), func(a *authz.Refusal) *int { return &a.Status }),
			put("token_status", between[int](400, 599), func(a *authz.Refusal) *int { return &a.TokenStatus }),
			put("pass", boolean, func(a *authz.Refusal) *bool { return &a.Pass }),
		},
	}
}

func accessSchema() object[authz.Access] {
	return object[authz.Access]{
		section{
			name:    "a rule of access",
			where:   "in a rule of access",
			belongs: "it belongs in an element of `access:`",
			example: "- {path: {prefix: /public/}, require: open}",
			part:    "authz",
		},
		[]key[authz.Access]{
			put("hosts", texts, func(a *authz.Access) *[]string { return &a.Hosts }),
			put("methods", texts, func(a *authz.Access) *[]string { return &a.Methods }),
			maybe("path", one(pathSchema), func(a *authz.Access) **authz.PathPattern { return &a.Path }),
			put("require", words[authz.Requirement], func(a *authz.Access) *authz.Requirement { return &a.Require }),
			put("scopes", texts, func(a *authz.Access) *[]string { return &a.Scopes }),
		},
	}
}

func pathSchema() object[authz.PathPattern] {
	return object[authz.PathPattern]{
		section{
			name:    "the `path` of a rule of access",
			where:   "in the `path` of a rule of access",
			belongs: "it belongs inside `path:` of a rule of access",
			example: "path: {prefix: /public/}",
			part:    "authz",
		},
		[]key[authz.PathPattern]{
			maybe("exact", text, func(p *authz.PathPattern) **string { return &p.Exact }),
			maybe("prefix", text, func(p *authz.PathPattern) **string { return &p.Prefix }),
			maybe("template", text, func(p *authz.PathPattern) **string { return &p.Template }),
		},
	}
}

func identityHeaderSchema() object[authz.IdentityHeaders] {
	return object[authz.IdentityHeaders]{
		section{
			name:    "`headers`",
			where:   "in `headers`",
			belongs: "it belongs inside `headers:` of `authz`",
			example: "headers: {owner: x-auth-owner}",
			part:    "authz",
		},
		[]key[authz.IdentityHeaders]{
			maybe("owner", nameOrOff, func(h *authz.IdentityHeaders) **authz.OptionalHeader { return &h.Owner }),
			maybe("plan", nameOrOff, func(h *authz.IdentityHeaders) **authz.OptionalHeader { return &h.Plan }),
			maybe("method", nameOrOff, func(h *authz.IdentityHeaders) **authz.OptionalHeader { return &h.Method }),
			maybe("key_id", nameOrOff, func(h *authz.IdentityHeaders) **authz.OptionalHeader { return &h.KeyID }),
		},
	}
}
