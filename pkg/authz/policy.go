// Package authz decides whether a request may pass: who sends it (API key, JWT, mTLS), whether they may do this, and whether
// they are within their limits. It knows neither Envoy's protos nor where keys and limits are kept.
package authz

import "time"

// Policy is the `authz:` section of a rule file, checked: plain values, as the parser of a rule source hands them over.
type Policy struct {
	// Credentials are tried in order; the first that a request carries decides who it is. With none, every request is anonymous.
	Credentials []Credential
	// Anonymous lets requests without any credential pass, as nobody (anonymous: allow).
	Anonymous bool
	// Absent answers a request without a credential where one is needed; Invalid one whose credential is not valid.
	// Defaults: 401 and 403.
	Absent, Invalid Refusal
	// Preflight lets CORS preflights (OPTIONS with origin and access-control-request-method) pass without a credential.
	Preflight bool
	// UnsafePaths lets paths pass that the upstream may read otherwise than this service: see UnsafePath.
	UnsafePaths bool
	// Access are the rules of access; the first that matches holds. A request that none matches needs a credential.
	Access []Access
	// Limits are the descriptors that are decided, in order.
	Limits []RateLimit
	// Refused are the descriptors that are decided for a request which is refused because its credential is absent or
	// not valid. If one of them is over its limit, the answer is 429.
	Refused []RateLimit
	// Headers are the names under which the upstream is told who calls. An empty name means not to tell.
	Headers IdentityHeaders
	// KeepHeaders are those of OverrideHeaders that are not removed from requests.
	KeepHeaders []string
	// Position is where the section stands, "file:line".
	Position string
}

// Refusal is how a request is refused.
type Refusal struct {
	// Status is the HTTP status, 400 to 599; 0 means the default.
	Status int
	// Pass lets the request pass all the same, as nobody (Spring's denyEmptyKey=false); only for Absent.
	Pass bool
}

// Credential is one way to say who sends a request. Exactly one of its fields is set.
type Credential struct {
	APIKey *APIKey
	JWT    *JWT
	MTLS   *MTLS
}

// Source is where in a request a credential stands. Exactly one of its fields is set, names in lower case but for Query and
// Cookie.
type Source struct {
	Header string
	// Scheme is the scheme of an Authorization header: "ApiKey" for `authorization: ApiKey <key>`.
	Scheme string
	Query  string
	Cookie string
}

// APIKey takes a key of the key file or of Redis.
type APIKey struct{ Source Source }

// JWT takes a signed token.
type JWT struct {
	Source Source // default: Scheme "Bearer"
	// Issuer and one of Audiences must be those of the token. Required.
	Issuer    string
	Audiences []string
	// Algorithms are the signature algorithms that are accepted, such as RS256. Required; never none or HMAC.
	Algorithms []string
	// Leeway is how far the clocks may differ, at most a minute.
	Leeway time.Duration
	// JWKSFile or JWKSURL is where the issuer's keys are. Exactly one is set.
	JWKSFile, JWKSURL string
	// OwnerClaim, PlanClaim and ScopesClaim say which claims those are. Defaults: sub, none, scope.
	OwnerClaim, PlanClaim, ScopesClaim string
}

// MTLS takes the principal of the client's certificate that Envoy has verified (source.principal).
type MTLS struct {
	// Principals are patterns of which one must match, such as spiffe://example.org/ns/*/sa/*. A `*` stands for any
	// characters but `/` and `,`; a pattern that is `*` alone matches every principal.
	Principals []string
}

// Requirement is what a rule of access asks for.
type Requirement uint8

// The requirements.
const (
	NeedCredential Requirement = iota
	Open
	Denied
)

// Access is one rule of access.
type Access struct {
	// Hosts are patterns of the host, without port; none means any.
	Hosts []string
	// Methods are HTTP methods; none means any.
	Methods []string
	// Path is matched with the path; the zero value matches any.
	Path PathPattern
	// Require is what is asked of a request that matches.
	Require Requirement
	// Scopes must all be granted to the credential.
	Scopes   []string
	Position string
}

// PathPattern is exact, a prefix, or a template such as /v1/users/{id}, in which {name} stands for one segment. At most one
// field is set.
type PathPattern struct{ Exact, Prefix, Template string }

// IdentityHeaders are names of request headers for the upstream, lower case. They are always set or removed, so that no client
// can send its own.
type IdentityHeaders struct{ Owner, Plan, Method, KeyID string }

// RateLimit makes one descriptor: each action gives an entry; when one has nothing to give, there is no descriptor.
type RateLimit struct {
	Actions []Action
	// Hits is the cost; zero value: 1.
	Hits     HitsAddend
	Position string
}

// HitsAddend is a fixed cost, or that which a header or a context extension states. A request that states none, or no number,
// costs Number, or 1.
type HitsAddend struct {
	Number            uint64
	Header, Extension string
}

// Action gives one entry of a descriptor, in the words of Envoy's route rate_limits. Exactly one field is set.
type Action struct {
	GenericKey       *GenericKey
	RequestHeader    *RequestHeader
	RemoteAddress    *RemoteAddress
	HeaderValueMatch *HeaderValueMatch
	QueryParameter   *QueryParameter
	Metadata         *Metadata
	Credential       *CredentialAction
	Method           *Named
	Host             *Named
	Path             *Named
}

// Named gives the entry (Key, value); each action has a default for Key.
type Named struct{ Key string }

// GenericKey gives (Key, Value), always. Default for Key: generic_key.
type GenericKey struct{ Key, Value string }

// RequestHeader gives (Key, value of the header); nothing without the header.
type RequestHeader struct{ Key, Header string }

// RemoteAddress gives (Key, address of the client): the peer's, or with TrustedHops > 0 the one that so many trusted proxies
// from the right of x-forwarded-for have seen. IPv4Mask and IPv6Mask make it a network. Their defaults are the whole address for IPv4,
// and the first 64 bits for IPv6, since a client there has all addresses of a /64. Default for Key: remote_address, or
// masked_remote_address with a mask. The value is "unknown" for a client without an IP address.
type RemoteAddress struct {
	Key                string
	TrustedHops        int
	IPv4Mask, IPv6Mask int
}

// HeaderValueMatch gives (Key, Value) when the header matches, or does not (Not). Default for Key: header_match.
type HeaderValueMatch struct {
	Key, Value, Header string
	// Pattern is what the header's value is matched with, `*` standing for any characters; "" means that it is present.
	Pattern string
	Not     bool
}

// QueryParameter gives (Key, first value of the parameter); nothing without it.
type QueryParameter struct{ Key, Parameter string }

// Metadata gives (Key, value at Path in the metadata that Envoy sends), Default when there is none; nothing when that is "".
type Metadata struct {
	Key     string
	Path    []string
	Default string
}

// CredentialAction gives (Key, what the credential says): Field is owner, plan, key_id, method, "label.<name>" or
// "claim.<name>". Nothing when the credential does not say it.
type CredentialAction struct{ Key, Field, Default string }
