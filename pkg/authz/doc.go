// Package authz decides whether a request may pass: whether its credential (API key, JWT, mTLS) is valid, whether that
// credential grants access, and whether the request is within its limits. It depends neither on Envoy's protos nor on
// the stores of keys and limits.
//
// A [Policy] is the `authz:` section of a rule file. [Policy.Check] finds its mistakes. [NewPolicies] compiles it for
// an [Authorizer].
package authz
