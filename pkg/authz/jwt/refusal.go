package jwt

import "github.com/extauthz/extauthz/pkg/authz"

// Reason says in one word what is wrong with a token, for logs and metrics. Clients are not told.
type Reason string

// The reasons.
const (
	Oversized     Reason = "oversized"      // longer than 8 KiB
	Malformed     Reason = "malformed"      // not a JWS in the compact form, or not with JSON in UTF-8
	Header        Reason = "header"         // a header that brings its own key, or asks for what is not supported
	Algorithm     Reason = "algorithm"      // a signature algorithm that the settings do not allow
	Type          Reason = "type"           // a token that says that it is for another use (RFC 8725, 3.11)
	UnknownKey    Reason = "unknown_key"    // no key of the issuer has this kid and is for this algorithm
	Signature     Reason = "signature"      // signed by somebody else, or changed
	Claims        Reason = "claims"         // a claim that is needed is missing, or of another type
	Issuer        Reason = "issuer"         // of another issuer
	Audience      Reason = "audience"       // for another audience
	Expired       Reason = "expired"        // after its exp
	NotYet        Reason = "not_yet"        // before its nbf or iat
	NoKeys        Reason = "no_keys"        // the issuer's keys have not been read yet, or too long ago
	UnknownIssuer Reason = "unknown_issuer" // an issuer that is not in force
)

// Error is why a token was refused. It holds nothing of the token.
type Error struct {
	Reason Reason
	// Kind is authz.ErrInvalid, ErrExpired, ErrNotYet or ErrUnavailable.
	Kind error
}

func (e *Error) Error() string { return "jwt (" + string(e.Reason) + "): " + e.Kind.Error() }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func invalid(r Reason) *Error { return &Error{Reason: r, Kind: authz.ErrInvalid} }
