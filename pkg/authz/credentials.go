package authz

import (
	"context"
	"errors"
)

// Keys checks API keys. It is safe for concurrent use.
type Keys interface {
	// Check returns the identity of a key. Its error is ErrInvalid, also after the same work for an unknown key and a
	// wrong one; ErrExpired, ErrNotYet, ErrDisabled; or ErrUnavailable while the keys cannot be read.
	Check(key string) (Identity, error)
}

// Tokens checks JWTs. It is safe for concurrent use.
type Tokens interface {
	// Check returns whose token it is; issuer is one of Policies. Its error is ErrInvalid, ErrExpired, ErrNotYet, or
	// ErrUnavailable when the issuer's keys cannot be read before ctx is done.
	Check(ctx context.Context, issuer *Issuer, token string) (Identity, error)
}

// What is wrong with a credential. The text is for logs; it never holds the credential.
var (
	ErrInvalid     = errors.New("the credential is not valid")
	ErrExpired     = errors.New("the credential has expired")
	ErrNotYet      = errors.New("the credential is not valid yet")
	ErrDisabled    = errors.New("the credential is disabled")
	ErrUnavailable = errors.New("the credential cannot be checked at the moment")
)
