package authz

import "time"

// Policy is the `authz:` section of a rule file, in the words of the file: one field for one key. Check finds its mistakes. A field
// that is a pointer has no value without its key.
type Policy struct {
	Credentials []Credential     `yaml:"credentials" doc:"The ways to say who sends a request. The first one that a request carries decides." example:"[{api_key: {header: x-api-key}}]"`
	Anonymous   Permission       `yaml:"anonymous" doc:"Whether a request without a credential passes." default:"deny"`
	Absent      *Refusal         `yaml:"absent" doc:"The answer to a request that lacks a credential." default:"{status: 401}" example:"{status: 401}"`
	Invalid     *Refusal         `yaml:"invalid" doc:"The answer to a request with a credential that is not valid." default:"{status: 403, token_status: 401}" example:"{status: 401}"`
	Preflight   Permission       `yaml:"preflight" doc:"Whether CORS preflights pass without a credential." default:"deny"`
	UnsafePaths Permission       `yaml:"unsafe_paths" doc:"Whether a path passes that the upstream may read differently." default:"deny"`
	Access      []Access         `yaml:"access" doc:"The rules of access. The first one that matches a request decides. A request that none matches needs a credential."`
	Limits      []RateLimit      `yaml:"limits" doc:"The descriptors of a request that is not refused. All of them are decided together."`
	Refused     []RateLimit      `yaml:"refused" doc:"The descriptors of a request that is refused because it has no valid credential. If a limit is exceeded, the answer is 429."`
	Headers     *IdentityHeaders `yaml:"headers" doc:"The names of the headers that tell the upstream who sends a request." example:"{owner: x-auth-owner}"`
	KeepHeaders []string         `yaml:"keep_headers" min:"1" doc:"The headers that stay on requests although applications may read another path, host or method from them." example:"[x-forwarded-host]"`
	// Position is where the section is, "file:line".
	Position string `yaml:",position"`
}

// Refusal is how a request is refused.
type Refusal struct {
	Status      int  `yaml:"status" min:"400" max:"599" doc:"The HTTP status." default:"401 for absent, 403 for invalid"`
	TokenStatus int  `yaml:"token_status" min:"400" max:"599" doc:"The HTTP status for a token (jwt); only in invalid." default:"status if it is set, else 401"`
	Pass        bool `yaml:"pass" doc:"Lets the request pass without an identity; only in absent." default:"false"`
}

// Credential is one way to say who sends a request. Exactly one of its keys is set.
type Credential struct {
	APIKey *APIKey `yaml:"api_key" oneof:"credential" doc:"A key of the key file or of Redis." example:"{header: x-api-key}"`
	JWT    *JWT    `yaml:"jwt" oneof:"credential" doc:"A signed token." example:"{issuer: https://idp.example, audiences: [shop], algorithms: [RS256], jwks_url: https://idp.example/keys}"`
	MTLS   *MTLS   `yaml:"mtls" oneof:"credential" doc:"The certificate of the client, which Envoy has verified." example:"{principals: [\"spiffe://example.org/ns/*/sa/*\"]}"`
	// Position is where the credential is, "file:line".
	Position string `yaml:",position"`
}

// Source is where in a request a credential is. Exactly one of its keys is set.
type Source struct {
	Header *string `yaml:"header" oneof:"source,optional" doc:"The name of a header." example:"x-api-key"`
	Scheme *string `yaml:"scheme" oneof:"source,optional" doc:"The scheme of the Authorization header." example:"ApiKey"`
	Query  *string `yaml:"query" oneof:"source,optional" doc:"The name of a query parameter." example:"api_key"`
	Cookie *string `yaml:"cookie" oneof:"source,optional" doc:"The name of a cookie." example:"session"`
}

// APIKey takes a key of the key file or of Redis.
type APIKey struct {
	Source `yaml:",inline"`
}

// JWT takes a signed token.
type JWT struct {
	Source      `yaml:",inline"`
	Issuer      *string       `yaml:"issuer" required:"true" doc:"The iss of the tokens." example:"https://idp.example"`
	Audiences   []string      `yaml:"audiences" required:"true" min:"1" doc:"One of these must be an aud of the token." example:"[shop]"`
	Algorithms  []string      `yaml:"algorithms" required:"true" min:"1" doc:"The signature algorithms that are accepted." example:"[RS256]"`
	Leeway      time.Duration `yaml:"leeway" doc:"How far the clocks may differ, at most 1m." default:"0s" example:"30s"`
	JWKSURL     *string       `yaml:"jwks_url" oneof:"keys" doc:"The URL that has the keys of the issuer." example:"https://idp.example/.well-known/jwks.json"`
	JWKSFile    *string       `yaml:"jwks_file" oneof:"keys" doc:"The file that has the keys of the issuer." example:"/etc/extauthz/keys.json"`
	OwnerClaim  *string       `yaml:"owner_claim" doc:"The claim that names the owner." default:"sub"`
	PlanClaim   string        `yaml:"plan_claim" doc:"The claim that names the plan." default:"none"`
	ScopesClaim string        `yaml:"scopes_claim" doc:"The claim that has the scopes." default:"scope"`
}

// MTLS takes the principal of the client's certificate, which Envoy has verified (source.principal).
type MTLS struct {
	// Principals are patterns. A `*` stands for any characters but `/` and `,`; a pattern that is `*` alone matches every principal.
	Principals []string `yaml:"principals" required:"true" min:"1" doc:"One of these patterns must match the principal of the certificate." example:"[\"spiffe://example.org/ns/*/sa/*\"]"`
}

// Access is one rule of access. A key that is absent matches every request.
type Access struct {
	Hosts   []string     `yaml:"hosts" min:"1" doc:"Patterns of the host, without port." example:"[\"*.example.com\"]"`
	Methods []string     `yaml:"methods" min:"1" doc:"The HTTP methods." example:"[GET, HEAD]"`
	Path    *PathPattern `yaml:"path" doc:"The path, after percent-decoding." example:"{prefix: /public/}"`
	Require Requirement  `yaml:"require" doc:"What a request that matches needs." default:"credential"`
	Scopes  []string     `yaml:"scopes" min:"1" doc:"The scopes that the credential needs, all of them." example:"[admin]"`
	// Position is where the rule is, "file:line".
	Position string `yaml:",position"`
}

// PathPattern is a pattern of paths. Exactly one of its keys is set.
type PathPattern struct {
	Exact    *string `yaml:"exact" oneof:"pattern" doc:"The path itself." example:"/healthz"`
	Prefix   *string `yaml:"prefix" oneof:"pattern" doc:"The path and all below it." example:"/public/"`
	Template *string `yaml:"template" oneof:"pattern" doc:"A path in which {name} stands for one segment." example:"/users/{id}"`
}

// Form returns the key that is set and its text, "" for a nil pattern, which matches every path.
func (p *PathPattern) Form() (key, text string) {
	switch {
	case p == nil:
		return "", ""
	case p.Exact != nil:
		return "exact", *p.Exact
	case p.Prefix != nil:
		return "prefix", *p.Prefix
	case p.Template != nil:
		return "template", *p.Template
	}
	return "", ""
}

// IdentityHeaders are the names of request headers that tell the upstream who sends a request. They are always set or removed, so
// that no client can send its own.
type IdentityHeaders struct {
	Owner  *OptionalHeader `yaml:"owner" doc:"The header with the owner; off sends none." default:"x-auth-owner"`
	Plan   *OptionalHeader `yaml:"plan" doc:"The header with the plan; off sends none." default:"x-auth-plan"`
	Method *OptionalHeader `yaml:"method" doc:"The header with the kind of credential; off sends none." default:"x-auth-method"`
	KeyID  *OptionalHeader `yaml:"key_id" doc:"The header with the ID of the key; off sends none." default:"x-auth-key-id"`
}

// RateLimit makes one descriptor: each action gives an entry. If an action has nothing to give, there is no descriptor.
type RateLimit struct {
	Actions []Action   `yaml:"actions" required:"true" doc:"Each action gives one entry of the descriptor." example:"[{credential: {field: owner}}]"`
	Hits    HitsAddend `yaml:"hits_addend" doc:"The cost of a request." default:"1" example:"{number: 100}"`
	// Position is where the limit is, "file:line".
	Position string `yaml:",position"`
}

// HitsAddend is the cost of a request: what a header or a context extension says, else Number, else 1.
type HitsAddend struct {
	Number    int64   `yaml:"number" min:"1" max:"1000000000" doc:"The cost of a request that says none." default:"1"`
	Header    *string `yaml:"header" oneof:"cost,optional" doc:"The header that says the cost." example:"x-tokens"`
	Extension *string `yaml:"extension" oneof:"cost,optional" doc:"The key of the route's context_extensions that says the cost." example:"cost"`
}

// Action gives one entry of a descriptor, in the words of Envoy's route rate_limits. Exactly one of its keys is set.
type Action struct {
	Credential       *CredentialAction `yaml:"credential" oneof:"action" doc:"What the credential says." example:"{field: owner, key: user}"`
	RequestHeaders   *RequestHeaders   `yaml:"request_headers" oneof:"action" doc:"The value of a header." example:"{header: x-tenant, key: tenant}"`
	RemoteAddress    *RemoteAddress    `yaml:"remote_address,bare" oneof:"action" doc:"The address of the client, or its network." example:"{trusted_hops: 1}"`
	GenericKey       *GenericKey       `yaml:"generic_key" oneof:"action" doc:"Always the same entry." example:"{key: tier, value: public}"`
	HeaderValueMatch *HeaderValueMatch `yaml:"header_value_match" oneof:"action" doc:"An entry if a header matches." example:"{header: user-agent, pattern: \"*bot*\", value: bot}"`
	QueryParameter   *QueryParameter   `yaml:"query_parameter" oneof:"action" doc:"The first value of a query parameter." example:"{parameter: tenant, key: tenant}"`
	Metadata         *Metadata         `yaml:"metadata" oneof:"action" doc:"What other filters of Envoy know." example:"{key: plan, path: [envoy.filters.http.jwt_authn, payload, plan]}"`
	Method           *MethodAction     `yaml:"method,bare" oneof:"action" doc:"The HTTP method." example:"{key: method}"`
	Host             *HostAction       `yaml:"host,bare" oneof:"action" doc:"The host, without port." example:"{key: host}"`
	Path             *PathAction       `yaml:"path,bare" oneof:"action" doc:"The pattern of the rule of access that matches the request." example:"{key: path}"`
}

// CredentialAction gives what the credential says under Field: owner, plan, key_id, method, "label.<name>" or "claim.<name>".
type CredentialAction struct {
	Field   *string `yaml:"field" required:"true" doc:"owner, plan, key_id, method, label.<name> or claim.<name>." example:"owner"`
	Key     *string `yaml:"key" doc:"The key of the entry." default:"the field"`
	Default string  `yaml:"default" doc:"The value if the credential does not say it. Without it there is no entry."`
}

// RequestHeaders gives the value of a header; nothing without the header.
type RequestHeaders struct {
	Header *string `yaml:"header" required:"true" doc:"The name of the header." example:"x-tenant"`
	Key    *string `yaml:"key" required:"true" doc:"The key of the entry." example:"tenant"`
}

// RemoteAddress gives the address of the client: the peer's, or with TrustedHops > 0 the one that so many trusted proxies from the
// right of x-forwarded-for have seen. The masks make it a network: the default is the whole address for IPv4, and the first 64 bits
// for IPv6, since a client there has all addresses of a /64. The value is "unknown" for a client without an IP address.
type RemoteAddress struct {
	Key         *string `yaml:"key" doc:"The key of the entry." default:"remote_address, or masked_remote_address with a mask"`
	TrustedHops int     `yaml:"trusted_hops" min:"0" max:"100" doc:"How many proxies that append to x-forwarded-for are trusted." default:"0"`
	IPv4Mask    int     `yaml:"ipv4_mask" min:"0" max:"32" doc:"How many bits of an IPv4 address count." default:"32"`
	IPv6Mask    int     `yaml:"ipv6_mask" min:"0" max:"128" doc:"How many bits of an IPv6 address count." default:"64"`
}

// GenericKey gives always the same entry.
type GenericKey struct {
	Key   *string `yaml:"key" doc:"The key of the entry." default:"generic_key"`
	Value *string `yaml:"value" required:"true" doc:"The value of the entry." example:"public"`
}

// HeaderValueMatch gives an entry if the header matches, or with Invert if it does not.
type HeaderValueMatch struct {
	Header  *string `yaml:"header" required:"true" doc:"The name of the header." example:"user-agent"`
	Key     *string `yaml:"key" doc:"The key of the entry." default:"header_match"`
	Value   *string `yaml:"value" required:"true" doc:"The value of the entry." example:"bot"`
	Pattern *string `yaml:"pattern" doc:"What the header must match; * stands for any characters. Without it the header must be there." example:"*bot*"`
	Invert  bool    `yaml:"invert" doc:"Gives the entry if the header does not match." default:"false"`
}

// QueryParameter gives the first value of a parameter; nothing without it.
type QueryParameter struct {
	Parameter *string `yaml:"parameter" required:"true" doc:"The name of the parameter." example:"tenant"`
	Key       *string `yaml:"key" required:"true" doc:"The key of the entry." example:"tenant"`
}

// Metadata gives the value at Path in the metadata that Envoy sends, Default if there is none; nothing if that is "".
type Metadata struct {
	Key     *string  `yaml:"key" required:"true" doc:"The key of the entry." example:"plan"`
	Path    []string `yaml:"path" required:"true" min:"1" doc:"The namespace of a filter, and the keys below it." example:"[envoy.filters.http.jwt_authn, payload, plan]"`
	Default string   `yaml:"default" doc:"The value if there is none. Without it there is no entry."`
}

// MethodAction gives the HTTP method.
type MethodAction struct {
	Key *string `yaml:"key" doc:"The key of the entry." default:"method"`
}

// HostAction gives the host, without port.
type HostAction struct {
	Key *string `yaml:"key" doc:"The key of the entry." default:"host"`
}

// PathAction gives the pattern of the rule of access that matches the request, `*` for a rule without one.
type PathAction struct {
	Key *string `yaml:"key" doc:"The key of the entry." default:"path"`
}
