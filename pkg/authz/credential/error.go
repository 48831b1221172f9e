package credential

import "errors"

// Error is why a credential was refused. It holds no part of the credential.
type Error struct {
	// Cause is one word for logs. Clients do not receive it.
	Cause string
	// Kind is ErrInvalid, ErrExpired, ErrNotYet or ErrUnavailable.
	Kind error
}

func (e *Error) Error() string { return e.Kind.Error() + " (" + e.Cause + ")" }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// Invalid returns an Error of the kind ErrInvalid.
func Invalid(cause string) *Error { return &Error{Cause: cause, Kind: ErrInvalid} }

// The reasons why a credential is not valid. The texts are for logs and never hold the credential.
var (
	ErrInvalid     = errors.New("the credential is not valid")
	ErrExpired     = errors.New("the credential has expired")
	ErrNotYet      = errors.New("the credential is not valid yet")
	ErrDisabled    = errors.New("the credential is disabled")
	ErrUnavailable = errors.New("the credential cannot be checked at the moment")
)
