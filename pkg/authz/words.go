package authz

import (
	"errors"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Permission is allow or deny. Its zero value is Deny.
type Permission bool

// The permissions.
const (
	Deny  Permission = false
	Allow Permission = true
)

// Words returns the words of a rule file for permissions.
func (Permission) Words() []string { return []string{"allow", "deny"} }

func (p Permission) String() string {
	if p == Allow {
		return "allow"
	}
	return "deny"
}

// UnmarshalText reads a word of Words.
func (p *Permission) UnmarshalText(text []byte) (err error) {
	*p, err = suggest.Value(text, p.Words(), Allow, Deny)
	return err
}

// Requirement is what an access rule requires. Its zero value is Unset.
type Requirement uint8

// The requirements. Unset means NeedCredential.
const (
	Unset Requirement = iota
	NeedCredential
	Open
	Denied
)

// Words returns the words of a rule file for requirements.
func (Requirement) Words() []string { return []string{"open", "credential", "denied"} }

func (r Requirement) String() string {
	return [...]string{Unset: "credential", NeedCredential: "credential", Open: "open", Denied: "denied"}[r]
}

// UnmarshalText reads a word of Words.
func (r *Requirement) UnmarshalText(text []byte) (err error) {
	*r, err = suggest.Value(text, r.Words(), Open, NeedCredential, Denied)
	return err
}

// OptionalHeader is the name of a header, "" for none. A rule file also writes `off` for none.
type OptionalHeader string

// UnmarshalText reads a name, or one of the words of YAML for no.
func (h *OptionalHeader) UnmarshalText(text []byte) error {
	switch strings.ToLower(string(text)) {
	case "off", "no", "n", "false":
		*h = ""
		return nil
	case "on", "yes", "y", "true":
		return errors.New("without the key, the header has its default name; `off` sends none")
	}
	*h = OptionalHeader(text)
	return nil
}
