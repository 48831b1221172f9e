// Package credential has what all kinds of credentials have in common. A [Kind] is one credential of a policy, and a
// [Checker] judges the credentials of a kind. authz.Credential lists the kinds of rule files.
package credential

import (
	"context"
	"errors"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Kind is one credential of a policy: the settings of its kind, which do not change.
type Kind interface {
	// Traits returns what all credentials of the kind have in common.
	Traits() Traits
	// Place returns where a request carries the credential. It applies the defaults of the settings.
	Place() Place
	// String returns the settings in one line, for the dump of the active rules.
	String() string
	// Check reports mistakes in the settings, except for those that the tags of their fields show. path is the path of
	// the settings in their policy. The tag remedy has the hint for an absent required key; ' stands for `.
	Check(m *ratelimit.Mistakes, path string)
}

// Traits are what all credentials of a kind have in common.
type Traits struct {
	// Name is the key of the kind in a policy, and the method of its identities.
	Name string
	// Scheme is that of WWW-Authenticate, "" for none. The scheme of a Place has priority, except for a token.
	Scheme string
	// Token means that a refusal has the status `token_status`, and the error of RFC 6750 in WWW-Authenticate.
	Token bool
	// Secret means that clients send a text that others can try to guess.
	Secret bool
	// Remote means that another server judges a credential that is not Slow.Known. It is not asked for clients that have
	// been refused too often.
	Remote bool
	// Gives are the words of what its identities have, beside an owner: scope, label, claim.
	Gives []string
}

// Forwarder is a Kind whose credentials can reach the upstream. Those of other kinds are always removed.
type Forwarder interface {
	// Forwards reports whether the upstream gets a credential with which a request was allowed, as the client sent it.
	Forwards() bool
}

// Checker judges the credentials of a kind, or is the kind whose settings suffice. It is safe for concurrent use.
type Checker interface {
	// Identify returns the identity of the client that has sent a credential, whose settings are kind. The error is
	// ErrInvalid, ErrExpired, ErrNotYet, ErrDisabled, or ErrUnavailable if the credential cannot be judged before ctx is
	// done. It can be an Error. A credential that is unknown and one that is wrong must take the same work.
	Identify(ctx context.Context, kind Kind, credential string) (Identity, error)
}

// Slow is a Checker that can take long.
type Slow interface {
	Checker
	// Known returns what Identify has returned before, if the credential is still valid. It never waits.
	Known(kind Kind, credential string) (id Identity, ok bool)
}

// Error is why a credential was refused. It holds no part of the credential.
type Error struct {
	// Cause is one word for logs. Clients do not receive it.
	Cause string
	// Kind is ErrInvalid, ErrExpired, ErrNotYet or ErrUnavailable.
	Kind error
	// Absent is Identity.Absent of a token that was refused for it.
	Absent []string
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
