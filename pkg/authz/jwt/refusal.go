package jwt

import "github.com/extauthz/extauthz/pkg/authz"

// Error is why a token was refused. It holds nothing of the token.
type Error struct {
	// Reason says in one word what is wrong, for people who look into it. Clients are not told.
	Reason string
	// Kind is authz.ErrInvalid, ErrExpired, ErrNotYet or ErrUnavailable.
	Kind error
}

func (e *Error) Error() string { return "jwt (" + e.Reason + "): " + e.Kind.Error() }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func invalid(reason string) *Error { return &Error{Reason: reason, Kind: authz.ErrInvalid} }
