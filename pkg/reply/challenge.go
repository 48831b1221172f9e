package reply

import (
	"fmt"
	"strings"
)

// Challenged lists the reasons with a challenge of their own.
func Challenged() []Reason { return []Reason{ReasonAbsent, ReasonInvalid, ReasonExpired, ReasonNotYet} }

// Challenge returns the part of WWW-Authenticate that asks for a credential by a scheme (RFC 9110, 11.6.1), "" without
// a scheme. After a refused token it has the error of RFC 6750, 3.1. Only errors of tokens with a valid signature have
// a description, so that an attacker with a forged token learns nothing.
func (r Reason) Challenge(scheme, domain string, token bool) string {
	if scheme == "" {
		return ""
	}
	text := fmt.Sprintf("%s realm=%q", scheme, realm(domain))
	if !token || r == ReasonAbsent {
		return text
	}
	text += `, error="invalid_token"`
	switch r {
	case ReasonExpired:
		text += `, error_description="The token has expired"`
	case ReasonNotYet:
		text += `, error_description="The token is not valid yet"`
	}
	return text
}

// realm returns the domain in a form for a quoted string.
func realm(domain string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, domain)
}
