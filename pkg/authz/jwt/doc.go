// Package jwt checks signed tokens (JWT, RFC 7519) that requests carry as credentials: signature, issuer, audience and
// times. It follows the best current practices of RFC 8725.
//
// A [Verifier] reads the keys of its issuers from files or URLs and reads them again when they may have changed.
// [Verifier.Identify] returns the identity of a token, or a [credential.Error].
package jwt
