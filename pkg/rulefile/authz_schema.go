package rulefile

import (
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// The schema of the `authz:` section of a rule file. As in schema.go, a new key is one field and one row.

// authzKeys are the keys of `authz:`.
type authzKeys struct {
	credentials given[[]credentialKeys]
	anonymous   given[bool]
	absent      given[refusalKeys]
	invalid     given[refusalKeys]
	preflight   given[bool]
	unsafePaths given[bool]
	access      given[[]accessKeys]
	limits      given[[]requestLimitKeys]
	refused     given[[]requestLimitKeys]
	headers     given[identityHeaderKeys]
	keepHeaders given[[]item]
}

func authzSchema() object[authzKeys] {
	return object[authzKeys]{
		section{
			name:    "`authz`",
			where:   "in `authz`",
			belongs: "it belongs directly in `authz:`",
			example: "authz: {anonymous: allow}",
			part:    "authz",
		},
		[]key[authzKeys]{
			on("credentials", credentialList, func(a *authzKeys) *given[[]credentialKeys] { return &a.credentials }),
			on("anonymous", allowOrDeny, func(a *authzKeys) *given[bool] { return &a.anonymous }),
			on("absent", one(refusalSchema), func(a *authzKeys) *given[refusalKeys] { return &a.absent }),
			on("invalid", one(refusalSchema), func(a *authzKeys) *given[refusalKeys] { return &a.invalid }),
			on("preflight", allowOrDeny, func(a *authzKeys) *given[bool] { return &a.preflight }),
			on("unsafe_paths", allowOrDeny, func(a *authzKeys) *given[bool] { return &a.unsafePaths }),
			on("access", accessList, func(a *authzKeys) *given[[]accessKeys] { return &a.access }),
			on("limits", limitsOf("limits"), func(a *authzKeys) *given[[]requestLimitKeys] { return &a.limits }),
			on("refused", limitsOf("refused"), func(a *authzKeys) *given[[]requestLimitKeys] { return &a.refused }),
			on("headers", one(identityHeaderSchema), func(a *authzKeys) *given[identityHeaderKeys] { return &a.headers }),
			on("keep_headers", texts, func(a *authzKeys) *given[[]item] { return &a.keepHeaders }),
		},
	}
}

// credentialKeys are the keys of an element of `credentials:`.
type credentialKeys struct {
	at     place
	apiKey given[sourceKeys]
	jwt    given[jwtKeys]
	mtls   given[mtlsKeys]
}

func credentialSchema() object[credentialKeys] {
	return object[credentialKeys]{
		section{
			name:    "an element of `credentials`",
			where:   "in an element of `credentials`",
			belongs: "it belongs in an element of `credentials:`",
			example: "- api_key: {header: x-api-key}",
			part:    "authz",
		},
		[]key[credentialKeys]{
			on("api_key", one(apiKeySchema), func(c *credentialKeys) *given[sourceKeys] { return &c.apiKey }),
			on("jwt", one(jwtSchema), func(c *credentialKeys) *given[jwtKeys] { return &c.jwt }),
			on("mtls", one(mtlsSchema), func(c *credentialKeys) *given[mtlsKeys] { return &c.mtls }),
		},
	}
}

// sourceKeys are the keys of `api_key:`, and those of `jwt:` that say where it stands.
type sourceKeys struct {
	header given[string]
	scheme given[string]
	query  given[string]
	cookie given[string]
}

func apiKeySchema() object[sourceKeys] {
	return object[sourceKeys]{
		section{
			name:    "`api_key`",
			where:   "in `api_key`",
			belongs: "it belongs inside `api_key:`",
			example: "api_key: {header: x-api-key}",
			part:    "authz",
			remarks: map[string]string{"key": neverHere, "keys": neverHere, "value": neverHere, "secret": neverHere},
		},
		sourceRows(func(s *sourceKeys) *sourceKeys { return s }),
	}
}

// neverHere says where API keys are.
const neverHere = "no key is ever in a rule file: `extauthz keys create` makes one, and only a hash of it is kept"

// sourceRows are the rows of the keys that say where in a request a credential stands.
func sourceRows[T any](source func(*T) *sourceKeys) []key[T] {
	return []key[T]{
		on("header", text, func(t *T) *given[string] { return &source(t).header }),
		on("scheme", text, func(t *T) *given[string] { return &source(t).scheme }),
		on("query", text, func(t *T) *given[string] { return &source(t).query }),
		on("cookie", text, func(t *T) *given[string] { return &source(t).cookie }),
	}
}

// jwtKeys are the keys of `jwt:`.
type jwtKeys struct {
	source      sourceKeys
	issuer      given[string]
	audiences   given[[]item]
	algorithms  given[[]item]
	leeway      given[time.Duration]
	jwksFile    given[string]
	jwksURL     given[string]
	ownerClaim  given[string]
	planClaim   given[string]
	scopesClaim given[string]
}

func jwtSchema() object[jwtKeys] {
	return object[jwtKeys]{
		section{
			name:    "`jwt`",
			where:   "in `jwt`",
			belongs: "it belongs inside `jwt:`",
			example: "jwt: {issuer: https://idp.example, audiences: [shop], algorithms: [RS256], jwks_url: https://idp.example/keys}",
			part:    "authz",
		},
		append(sourceRows(func(j *jwtKeys) *sourceKeys { return &j.source }),
			on("issuer", text, func(j *jwtKeys) *given[string] { return &j.issuer }),
			on("audiences", texts, func(j *jwtKeys) *given[[]item] { return &j.audiences }),
			on("algorithms", texts, func(j *jwtKeys) *given[[]item] { return &j.algorithms }),
			on("leeway", duration, func(j *jwtKeys) *given[time.Duration] { return &j.leeway }),
			on("jwks_file", text, func(j *jwtKeys) *given[string] { return &j.jwksFile }),
			on("jwks_url", text, func(j *jwtKeys) *given[string] { return &j.jwksURL }),
			on("owner_claim", text, func(j *jwtKeys) *given[string] { return &j.ownerClaim }),
			on("plan_claim", text, func(j *jwtKeys) *given[string] { return &j.planClaim }),
			on("scopes_claim", text, func(j *jwtKeys) *given[string] { return &j.scopesClaim }),
		),
	}
}

// mtlsKeys are the keys of `mtls:`.
type mtlsKeys struct {
	principals given[[]item]
}

func mtlsSchema() object[mtlsKeys] {
	return object[mtlsKeys]{
		section{
			name:    "`mtls`",
			where:   "in `mtls`",
			belongs: "it belongs inside `mtls:`",
			example: `mtls: {principals: ["spiffe://example.org/ns/*/sa/*"]}`,
			part:    "authz",
		},
		[]key[mtlsKeys]{
			on("principals", texts, func(m *mtlsKeys) *given[[]item] { return &m.principals }),
		},
	}
}

// refusalKeys are the keys of `absent:` and `invalid:`.
type refusalKeys struct {
	status given[int64]
	pass   given[bool]
}

func refusalSchema() object[refusalKeys] {
	return object[refusalKeys]{
		section{
			name:    "a refusal",
			where:   "in a refusal",
			belongs: "it belongs inside `absent:` or `invalid:`",
			example: "{status: 401}",
			part:    "authz",
		},
		[]key[refusalKeys]{
			on("status", between(400, 599), func(a *refusalKeys) *given[int64] { return &a.status }),
			on("pass", boolean, func(a *refusalKeys) *given[bool] { return &a.pass }),
		},
	}
}

// accessKeys are the keys of an element of `access:`.
type accessKeys struct {
	at      place
	hosts   given[[]item]
	methods given[[]item]
	path    given[pathKeys]
	require given[authz.Requirement]
	scopes  given[[]item]
}

func accessSchema() object[accessKeys] {
	return object[accessKeys]{
		section{
			name:    "a rule of access",
			where:   "in a rule of access",
			belongs: "it belongs in an element of `access:`",
			example: "- {path: {prefix: /public/}, require: open}",
			part:    "authz",
		},
		[]key[accessKeys]{
			on("hosts", texts, func(a *accessKeys) *given[[]item] { return &a.hosts }),
			on("methods", texts, func(a *accessKeys) *given[[]item] { return &a.methods }),
			on("path", one(pathSchema), func(a *accessKeys) *given[pathKeys] { return &a.path }),
			on("require", requirement, func(a *accessKeys) *given[authz.Requirement] { return &a.require }),
			on("scopes", texts, func(a *accessKeys) *given[[]item] { return &a.scopes }),
		},
	}
}

// pathKeys are the keys of `path:` in a rule of access.
type pathKeys struct {
	exact    given[string]
	prefix   given[string]
	template given[string]
}

func pathSchema() object[pathKeys] {
	return object[pathKeys]{
		section{
			name:    "the `path` of a rule of access",
			where:   "in the `path` of a rule of access",
			belongs: "it belongs inside `path:` of a rule of access",
			example: "path: {prefix: /public/}",
			part:    "authz",
		},
		[]key[pathKeys]{
			on("exact", text, func(p *pathKeys) *given[string] { return &p.exact }),
			on("prefix", text, func(p *pathKeys) *given[string] { return &p.prefix }),
			on("template", text, func(p *pathKeys) *given[string] { return &p.template }),
		},
	}
}

// identityHeaderKeys are the keys of `headers:`.
type identityHeaderKeys struct {
	owner  given[string]
	plan   given[string]
	method given[string]
	keyID  given[string]
}

func identityHeaderSchema() object[identityHeaderKeys] {
	return object[identityHeaderKeys]{
		section{
			name:    "`headers`",
			where:   "in `headers`",
			belongs: "it belongs inside `headers:` of `authz`",
			example: "headers: {owner: x-auth-owner}",
			part:    "authz",
		},
		[]key[identityHeaderKeys]{
			on("owner", nameOrOff, func(h *identityHeaderKeys) *given[string] { return &h.owner }),
			on("plan", nameOrOff, func(h *identityHeaderKeys) *given[string] { return &h.plan }),
			on("method", nameOrOff, func(h *identityHeaderKeys) *given[string] { return &h.method }),
			on("key_id", nameOrOff, func(h *identityHeaderKeys) *given[string] { return &h.keyID }),
		},
	}
}
