// Package mtls judges the principals of clients' certificates, which Envoy has verified.
package mtls

import (
	"context"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Credential accepts the principal of a certificate (source.principal). It is a credential.Kind and its Checker.
type Credential struct {
	// Principals are patterns. A `*` stands for any characters but `/` and `,`. The pattern `*` matches every principal.
	Principals []string `yaml:"principals" required:"true" remedy:"add 'principals: [\"spiffe://example.org/ns/*/sa/*\"]'; '\"*\"' accepts every certificate that Envoy has verified" min:"1" doc:"Patterns for the principal of the certificate. One of them must match." example:"[\"spiffe://example.org/ns/*/sa/*\"]"`
}

// Traits returns those of certificates.
func (*Credential) Traits() credential.Traits { return credential.Traits{Name: "mtls"} }

// Place returns the certificate.
func (*Credential) Place() credential.Place { return credential.Place{In: credential.Certificate} }

// String returns the patterns.
func (c *Credential) String() string { return strings.Join(c.Principals, ", ") }

// Check reports nothing: the tags show all mistakes.
func (*Credential) Check(*ratelimit.Mistakes, string) {}

// Identify returns the identity of a principal.
func (c *Credential) Identify(_ context.Context, _ credential.Kind, principal string) (credential.Identity, error) {
	if !slices.ContainsFunc(c.Principals, func(pattern string) bool { return match(pattern, principal) }) {
		return credential.Identity{}, credential.Invalid("principal")
	}
	return credential.Identity{Method: "mtls", Owner: principal}, nil
}

// match compares a pattern with a principal part by part; `/` and `,` separate parts. So a `*` matches within one
// segment of a SPIFFE ID or one part of a subject, and never several names of a list.
func match(pattern, principal string) bool {
	const separators = "/,"
	if pattern == "*" {
		return true
	}
	for {
		p, s := strings.IndexAny(pattern, separators), strings.IndexAny(principal, separators)
		if p < 0 || s < 0 {
			return p == s && descriptors.Match(pattern, principal)
		}
		if pattern[p] != principal[s] || !descriptors.Match(pattern[:p], principal[:s]) {
			return false
		}
		pattern, principal = pattern[p+1:], principal[s+1:]
	}
}
