package authz

import (
	"reflect"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/authz/mtls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Policy is the `authz:` section of a rule file: one field for one key. A pointer is nil without its key.
type Policy struct {
	Credentials []Credential     `yaml:"credentials" doc:"The places where a request can carry a credential. The first one that it carries decides." example:"[{api_key: {header: x-api-key}}]"`
	Anonymous   Permission       `yaml:"anonymous" doc:"Whether a request without a credential passes." default:"deny" example:"allow"`
	Absent      *Refusal         `yaml:"absent" doc:"The answer to a request that needs a credential and has none." default:"{status: 401}" example:"{status: 401}"`
	Invalid     *Refusal         `yaml:"invalid" doc:"The answer to a request whose credential is not valid." default:"{status: 403, token_status: 401}" example:"{status: 401}"`
	Preflight   Permission       `yaml:"preflight" doc:"Whether CORS preflight requests pass without a credential." default:"deny" example:"allow"`
	UnsafePaths Permission       `yaml:"unsafe_paths" doc:"Whether a request passes if the upstream may read its path differently. If not, it gets 400." default:"deny" example:"allow"`
	Access      []Access         `yaml:"access" doc:"The access rules. The first one that matches decides. Without a match, a request needs a credential." example:"[{path: {prefix: /public/}, require: open}]"`
	Limits      []RateLimit      `yaml:"limits" doc:"What an allowed request counts against. Each element makes a descriptor for the rules in descriptors." example:"[{actions: [{credential: {field: owner}}]}]"`
	Refused     []RateLimit      `yaml:"refused" doc:"The same for a request that lacks a valid credential. Over such a limit it gets 429 or the status of that limit, else 401 or 403." example:"[{actions: [{remote_address: {key: refused_address}}]}]"`
	Headers     *IdentityHeaders `yaml:"headers" doc:"The request headers that tell the upstream who the client is." example:"{owner: x-auth-owner}"`
	KeepHeaders []string         `yaml:"keep_headers" min:"1" doc:"Headers to keep, although applications may read another path, host or method from them." example:"[x-forwarded-host]"`

	QuotaPath    string            `yaml:"quota_path" doc:"The path at which a client with a valid credential reads what is left of its limits." example:"/quota"`
	LimitHeaders map[string]string `yaml:"limit_headers" doc:"Own headers of answers, by name, for the tightest limit of a request." example:"{X-Quota: \"{used}/{limit}\"}"`
	// Position is where the section is, "file:line".
	Position string `yaml:",position"`
}

// Refusal is how a request is refused.
type Refusal struct {
	Status      int  `yaml:"status" min:"400" max:"599" doc:"The HTTP status of the answer." default:"401 for absent, 403 for invalid" example:"401"`
	TokenStatus int  `yaml:"token_status" min:"400" max:"599" doc:"The HTTP status if the credential is a token (jwt). Only in invalid." default:"status if it is set, else 401" example:"401"`
	Pass        bool `yaml:"pass" doc:"Lets the request pass without an identity. Only in absent." default:"false" example:"true"`
}

// Credential is one credential that a policy accepts. Exactly one of its fields is set. They are the list of all kinds.
type Credential struct {
	APIKey *apikey.Credential `yaml:"api_key" oneof:"credential" doc:"An API key from the key file or from Redis." example:"{header: x-api-key}"`
	JWT    *jwt.Credential    `yaml:"jwt" oneof:"credential" doc:"A signed token (JWT)." example:"{issuer: https://idp.example, audiences: [shop], algorithms: [RS256], jwks_url: https://idp.example/keys}"`
	Opaque *jwt.Opaque        `yaml:"opaque_token" oneof:"credential" doc:"A token about which its issuer is asked (RFC 7662)." example:"{introspection_url: https://idp.example/introspect, client_id: extauthz, client_secret_file: /etc/extauthz/secret}"`
	MTLS   *mtls.Credential   `yaml:"mtls" oneof:"credential" doc:"The certificate of the client, which Envoy has verified." example:"{principals: [\"spiffe://example.org/ns/*/sa/*\"]}"`
	// Own is a kind that rule files do not have, of a program that embeds this package.
	Own credential.Kind `oneof:"credential"`
	// Position is where the credential is, "file:line".
	Position string `yaml:",position"`
}

// Kind returns the kind that is set, nil for none.
func (c *Credential) Kind() credential.Kind {
	for _, field := range reflect.ValueOf(*c).Fields() {
		if kind, ok := reflect.TypeAssert[credential.Kind](field); ok && !field.IsZero() {
			return kind
		}
	}
	return nil
}

// kinds returns all kinds of rule files, without settings.
func kinds() (list []credential.Kind) {
	for field := range reflect.TypeFor[Credential]().Fields() {
		if field.Type.Kind() == reflect.Pointer {
			list = append(list, reflect.New(field.Type.Elem()).Interface().(credential.Kind))
		}
	}
	return list
}

// Access is one access rule. An absent key matches every request.
type Access struct {
	Hosts   []string     `yaml:"hosts" min:"1" doc:"Host names without port. * stands for any characters." example:"[\"*.example.com\"]"`
	Methods []string     `yaml:"methods" min:"1" doc:"HTTP methods in upper case." example:"[GET, HEAD]"`
	Path    *PathPattern `yaml:"path" doc:"The path without the query, after percent-decoding." example:"{prefix: /public/}"`

	Networks    []string `yaml:"networks" min:"1" doc:"Names of networks, one of which has the address of the client." example:"[office]"`
	TrustedHops int      `yaml:"trusted_hops" min:"0" max:"100" doc:"Where networks finds the address of the client, as in the action remote_address." default:"0" example:"1"`

	Require Requirement `yaml:"require" doc:"What a matching request needs: nothing (open) or a credential. denied refuses it." default:"credential" example:"open"`
	Scopes  []string    `yaml:"scopes" min:"1" doc:"Scopes that the credential must have, all of them." example:"[admin]"`
	// Enforce is that of a rule that refuses requests. For the others, the next rule that matches decides.
	Enforce *ratelimit.Enforce `yaml:"enforce" doc:"Enforces the rule for a part of the requests. For the others, the next rule that matches decides." default:"for all" example:"{percent: 10, by: owner}"`
	// Position is where the rule is, "file:line".
	Position string `yaml:",position"`
}

// PathPattern is a pattern of paths. Exactly one of its keys is set.
type PathPattern struct {
	Exact    *string `yaml:"exact" oneof:"pattern" doc:"Only this path." example:"/healthz"`
	Prefix   *string `yaml:"prefix" oneof:"pattern" doc:"This path and all paths below it." example:"/public/"`
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

// IdentityHeaders name the headers with the identity for the upstream. Those of the client are replaced or removed.
type IdentityHeaders struct {
	Owner  *OptionalHeader `yaml:"owner" doc:"The header with the owner of the credential. off sends none." default:"x-auth-owner" example:"x-customer"`
	Plan   *OptionalHeader `yaml:"plan" doc:"The header with the plan of the owner. off sends none." default:"x-auth-plan" example:"off"`
	Method *OptionalHeader `yaml:"method" doc:"The header with the kind of credential: api_key, jwt, opaque_token, mtls or anonymous. off sends none." default:"x-auth-method" example:"off"`
	KeyID  *OptionalHeader `yaml:"key_id" doc:"The header with the ID of the key. off sends none." default:"x-auth-key-id" example:"off"`
}

// RateLimit makes one descriptor: each action makes an entry. If an action has no value, there is no descriptor.
type RateLimit struct {
	Actions []Action `yaml:"actions" required:"true" doc:"Each action makes one entry of the descriptor. If one has no value, there is no descriptor." example:"[{credential: {field: owner}}]"`
	Cost    Cost     `yaml:"cost" former:"hits_addend" doc:"The cost of a request." default:"1" example:"{number: 100}"`
	Hold    *Hold    `yaml:"hold" doc:"Makes the cost a hold until it is settled. The rule needs hold, too." example:"{request_header: x-hold-id}"`
	// Position is where the limit is, "file:line".
	Position string `yaml:",position"`
}

// Action makes one entry of a descriptor, as an action of Envoy's rate_limits does. Exactly one of its keys is set.
type Action struct {
	Credential       *CredentialAction `yaml:"credential" oneof:"action" doc:"A field of the credential, such as its owner." example:"{field: owner, key: user}"`
	RequestHeaders   *RequestHeaders   `yaml:"request_headers" oneof:"action" doc:"The value of a request header." example:"{header: x-tenant, key: tenant}"`
	RemoteAddress    *RemoteAddress    `yaml:"remote_address,bare" oneof:"action" doc:"The address of the client, or its network." example:"{trusted_hops: 1}"`
	GenericKey       *GenericKey       `yaml:"generic_key" oneof:"action" doc:"The same entry for every request." example:"{key: tier, value: public}"`
	HeaderValueMatch *HeaderValueMatch `yaml:"header_value_match" oneof:"action" doc:"An entry for requests with a header that matches." example:"{header: user-agent, pattern: \"*bot*\", value: bot}"`
	QueryParameter   *QueryParameter   `yaml:"query_parameter" oneof:"action" doc:"The first value of a query parameter." example:"{parameter: tenant, key: tenant}"`
	Metadata         *Metadata         `yaml:"metadata" oneof:"action" doc:"A value that another filter of Envoy has set." example:"{key: plan, path: [envoy.filters.http.jwt_authn, payload, plan]}"`
	Method           *MethodAction     `yaml:"method,bare" oneof:"action" doc:"The HTTP method." example:"{key: method}"`
	Host             *HostAction       `yaml:"host,bare" oneof:"action" doc:"The host without port." example:"{key: host}"`
	Path             *PathAction       `yaml:"path,bare" oneof:"action" doc:"The pattern of the access rule that matches the request, not the path itself." example:"{key: path}"`
}

// CredentialAction gives a field of the credential: owner, plan, key_id, method, "label.<name>" or "claim.<name>".
type CredentialAction struct {
	Field   *credential.Path `yaml:"field" required:"true" doc:"The field: owner, plan, key_id, method, label.<name> or claim.<name>." example:"owner"`
	Key     *string          `yaml:"key" doc:"The key of the entry." default:"the field" example:"user"`
	Default string           `yaml:"default" doc:"The value if the credential lacks the field. Without it, there is no entry." example:"none"`
}

// RequestHeaders gives the value of a header. Without the header, there is no entry.
type RequestHeaders struct {
	Header *string `yaml:"header" required:"true" doc:"The name of the header." example:"x-tenant"`
	Key    *string `yaml:"key" required:"true" doc:"The key of the entry." example:"tenant"`
}

// RemoteAddress gives the address of the client: that of the peer, or with TrustedHops > 0 the address at that position
// of x-forwarded-for, from the right. The masks make it a network, by default of 64 bits for IPv6, because a client can
// use all addresses of a /64. The value is "unknown" for a client without an IP address. With Networks, the value is
// the name of the network with the longest prefix that has the address, else Default. If that is "", there is no entry.
type RemoteAddress struct {
	Key         *string `yaml:"key" doc:"The key of the entry." default:"remote_address, masked_remote_address if a mask is set, or network with networks" example:"address"`
	TrustedHops int     `yaml:"trusted_hops" min:"0" max:"100" doc:"The position of the address in x-forwarded-for, from the right. 0 is the address of the peer." default:"0" example:"2"`
	IPv4Mask    int     `yaml:"ipv4_mask" min:"0" max:"32" doc:"The length of the prefix that is kept of an IPv4 address." default:"0, the whole address" example:"24"`
	IPv6Mask    int     `yaml:"ipv6_mask" min:"0" max:"128" doc:"The length of the prefix that is kept of an IPv6 address." default:"64" example:"56"`

	Networks []string `yaml:"networks" min:"1" doc:"Names of networks. The value is the name of the one with the longest prefix that has the address." example:"[office, partners]"`
	Default  string   `yaml:"default" doc:"The value for an address in none of networks. Without it, there is no entry." example:"other"`
}

// GenericKey always gives the same entry.
type GenericKey struct {
	Key   *string `yaml:"key" doc:"The key of the entry." default:"generic_key" example:"tier"`
	Value *string `yaml:"value" required:"true" doc:"The value of the entry." example:"public"`
}

// HeaderValueMatch gives an entry if the header matches, or with Invert if it does not.
type HeaderValueMatch struct {
	Header  *string `yaml:"header" required:"true" doc:"The name of the header." example:"user-agent"`
	Key     *string `yaml:"key" doc:"The key of the entry." default:"header_match" example:"client"`
	Value   *string `yaml:"value" required:"true" doc:"The value of the entry. It is not the value of the header." example:"bot"`
	Pattern *string `yaml:"pattern" doc:"What the header must equal. * stands for any characters. Without it, any value matches." example:"'*bot*'"`
	Invert  bool    `yaml:"invert" doc:"Makes the entry if the header does not match or is absent." default:"false" example:"true"`
}

// QueryParameter gives the first value of a parameter. Without the parameter, there is no entry.
type QueryParameter struct {
	Parameter *string `yaml:"parameter" required:"true" doc:"The name of the parameter." example:"tenant"`
	Key       *string `yaml:"key" required:"true" doc:"The key of the entry." example:"tenant"`
}

// Metadata gives the value at Path in the metadata that Envoy sends, else Default. If that is "", there is no entry.
type Metadata struct {
	Path    []string `yaml:"path" required:"true" min:"1" doc:"The namespace of a filter and the keys below it." example:"[envoy.filters.http.jwt_authn, payload, plan]"`
	Key     *string  `yaml:"key" required:"true" doc:"The key of the entry." example:"plan"`
	Default string   `yaml:"default" doc:"The value if there is none at the path. Without it, there is no entry." example:"none"`
}

// MethodAction gives the HTTP method.
type MethodAction struct {
	Key *string `yaml:"key" doc:"The key of the entry." default:"method" example:"verb"`
}

// HostAction gives the host, without port.
type HostAction struct {
	Key *string `yaml:"key" doc:"The key of the entry." default:"host" example:"site"`
}

// PathAction gives the path pattern of the access rule that matches the request, `*` for a rule without one.
type PathAction struct {
	Key *string `yaml:"key" doc:"The key of the entry." default:"path" example:"endpoint"`
}
