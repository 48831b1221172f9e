package authz

import (
	"context"
	"errors"
)

// CredentialError is why a credential was refused. It holds no part of the credential.
type CredentialError struct {
	// Cause is one word for logs. Clients do not receive it.
	Cause string
	// Kind is ErrInvalid, ErrExpired, ErrNotYet or ErrUnavailable.
	Kind error
}

func (e *CredentialError) Error() string { return e.Kind.Error() + " (" + e.Cause + ")" }

// Unwrap returns the kind.
func (e *CredentialError) Unwrap() error { return e.Kind }

// causeOf returns the cause of a CredentialError, "" for another error.
func causeOf(err error) string {
	if e, ok := errors.AsType[*CredentialError](err); ok {
		return e.Cause
	}
	return ""
}

// Invalid returns a CredentialError of the kind ErrInvalid.
func Invalid(cause string) *CredentialError { return &CredentialError{Cause: cause, Kind: ErrInvalid} }

// Keys checks API keys. It is safe for concurrent use.
type Keys interface {
	// Check returns the identity of a key, in memory. Its error is ErrInvalid, ErrExpired, ErrNotYet, ErrDisabled, or
	// ErrUnavailable while the keys cannot be read. An unknown key and one with a wrong secret must take the same work.
	Check(key string) (Identity, error)
}

// Tokens checks JWTs. It is safe for concurrent use.
type Tokens interface {
	// Known returns what Check returned before for a token that is still valid. It takes little time, and never waits.
	Known(issuer *Issuer, token string) (id Identity, ok bool)
	// Check returns the identity of a token; issuer is one of Policies. Its error is ErrInvalid, ErrExpired, ErrNotYet, or
	// ErrUnavailable if the issuer's keys cannot be read before ctx is done. It can be a CredentialError.
	Check(ctx context.Context, issuer *Issuer, token string) (Identity, error)
}

// The reasons why a credential is not valid. The texts are for logs and never hold the credential.
var (
	ErrInvalid     = errors.New("the credential is not valid")
	ErrExpired     = errors.New("the credential has expired")
	ErrNotYet      = errors.New("the credential is not valid yet")
	ErrDisabled    = errors.New("the credential is disabled")
	ErrUnavailable = errors.New("the credential cannot be checked at the moment")
)
