// Package authz decides whether a request may pass: who sends it (API key, JWT, mTLS), whether they may do this, and whether
// they are within their limits. It knows neither Envoy's protos nor where keys and limits are kept.
//
// A Policy is what a rule file says. Policy.Check finds its mistakes; NewPolicies compiles it for an Authorizer.
package authz
