package jwt

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// judge returns the identity and the end of a token, or what is wrong with its claims. It checks no signature.
func (v *validator) judge(claims map[string]any, now time.Time) (
	id credential.Identity, expires time.Time, wrong *credential.Error,
) {
	if claims["iss"] != text(v.issuer.Issuer) {
		return id, expires, credential.Invalid("issuer")
	}
	if !slices.ContainsFunc(listOf(claims["aud"]), func(a string) bool { return slices.Contains(v.issuer.Audiences, a) }) {
		return id, expires, credential.Invalid("audience")
	}
	id = v.issuer.identity(claims)
	expires, notBefore, ok := timesOf(claims)
	switch {
	case id.Owner == "":
		return id, expires, &credential.Error{Cause: "subject", Kind: credential.ErrInvalid, Absent: id.Absent}
	case !ok || expires.IsZero():
		return id, expires, credential.Invalid("times")
	}
	expires = expires.Add(v.issuer.Leeway)
	if !now.Before(expires) {
		return id, expires, &credential.Error{Cause: "expired", Kind: credential.ErrExpired}
	}
	if soonest := now.Add(v.issuer.Leeway); notBefore.After(soonest) {
		return id, expires, &credential.Error{Cause: "not_yet", Kind: credential.ErrNotYet}
	}
	return id, expires, nil
}

// identity returns the identity by the claims of a token. It lists the claims of the settings that give nothing.
func (c *Credential) identity(claims map[string]any) credential.Identity {
	id := credential.Identity{Method: Name, Claims: claims}
	owner, plan, scopes := cmp.Or(c.OwnerClaim, credential.NewPath("sub")), c.PlanClaim, c.ScopesClaim
	if id.Owner, _ = owner.In(claims).(string); id.Owner == "" {
		id.Absent = append(id.Absent, owner.String())
	}
	if plan != nil {
		if id.Plan, _ = plan.In(claims).(string); id.Plan == "" {
			id.Absent = append(id.Absent, plan.String())
		}
	}
	id.Scopes = scopesOf(cmp.Or(scopes, credential.NewPath("scope")).In(claims))
	if scopes != nil && id.Scopes == nil {
		id.Absent = append(id.Absent, scopes.String())
	}
	return id
}

// timesOf reads exp, zero without it, and the later one of nbf and iat. ok is false if one of them is not a date.
func timesOf(claims map[string]any) (expires, notBefore time.Time, ok bool) {
	for _, name := range []string{"exp", "nbf", "iat"} {
		claim, present := claims[name]
		date, ok := dateOf(claim)
		switch {
		case present && !ok:
			return expires, notBefore, false
		case name == "exp":
			expires = date
		case date.After(notBefore):
			notBefore = date
		}
	}
	return expires, notBefore, true
}

// lastDate is the end of the year 9999, the last that most formats of time can express.
const lastDate = 253402300799

// dateOf reads a NumericDate: seconds since 1970, maybe with a fraction.
func dateOf(claim any) (time.Time, bool) {
	var seconds float64
	switch c := claim.(type) {
	case int64:
		seconds = float64(c)
	case float64:
		seconds = c
	default:
		return time.Time{}, false
	}
	if !(seconds >= 0 && seconds <= lastDate) {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(seconds * 1e6)), true
}

// listOf returns a claim that is a string or a list of strings, such as aud; nil for another.
func listOf(claim any) []string {
	if text, ok := claim.(string); ok {
		return []string{text}
	}
	elements, isList := claim.([]any)
	if !isList {
		return nil
	}
	list := make([]string, 0, len(elements))
	for _, e := range elements {
		text, ok := e.(string)
		if !ok {
			return nil
		}
		list = append(list, text)
	}
	return list
}

// scopesOf returns a list of strings, or words separated by spaces (RFC 8693, 4.2) and no other white space; or nil.
func scopesOf(claim any) []string {
	if text, ok := claim.(string); ok {
		return strings.FieldsFunc(text, func(c rune) bool { return c == ' ' })
	}
	return listOf(claim)
}
