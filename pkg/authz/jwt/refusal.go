package jwt

import "github.com/extauthz/extauthz/pkg/authz"

// Error is why a token was refused. It holds no part of the token.
type Error struct {
	// Reason is one word for logs. Clients do not receive it.
	Reason string
	// Kind is authz.ErrInvalid, ErrExpired, ErrNotYet or ErrUnavailable.
	Kind error
}

func (e *Error) Error() string { return "jwt (" + e.Reason + "): " + e.Kind.Error() }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func invalid(reason string) *Error { return &Error{Reason: reason, Kind: authz.ErrInvalid} }
