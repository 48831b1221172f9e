// Package authz decides whether a request may pass: whether its credential (API key, JWT, mTLS) is valid and grants
// access, and whether the request is within its limits. It depends on no protos of Envoy, and on no store.
//
// A [Policy] is the `authz:` section of a rule file. [Policy.Check] finds its mistakes. [NewPolicies] compiles it for
// an [Authorizer].
package authz
