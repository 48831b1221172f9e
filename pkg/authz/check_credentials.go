package authz

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// maxCredentials is the largest number of credentials: each is looked for in every request.
const maxCredentials = 32

// checkCredentials checks the credentials, and reports those that are never tried.
func (c *checker) checkCredentials() {
	for i := range c.Credentials {
		one, path := &c.Credentials[i], ratelimit.Element("credentials", i)
		if i == maxCredentials {
			c.At(path).Fail(
				fmt.Sprintf("more than %d credentials", maxCredentials), "each is looked for in every request: join some")
			return
		}
		kind := one.Kind()
		if kind == nil { // its keys are checked by their tags
			continue
		}
		kind.Check(&c.Mistakes, path+"."+kind.Traits().Name)
		k := slices.IndexFunc(c.Credentials[:i], func(earlier Credential) bool { return earlier.takes(kind) })
		if k >= 0 {
			earlier := ratelimit.Element("credentials", k)
			c.At(path, slices.Concat(one.sourcePaths(path), c.Credentials[k].sourcePaths(earlier))...).Fail(
				"this credential is never tried: the one at "+cmp.Or(c.Credentials[k].Position, earlier)+
					" reads the same place of a request",
				"the first that a request carries decides: give one of them another place, or join them")
		}
	}
}

// sourcePaths returns the paths of all keys of the place of a credential, which is at a path.
func (c *Credential) sourcePaths(path string) []string {
	return credential.SourcePaths(path + "." + c.Kind().Traits().Name)
}

// sendsSecret reports whether a credential is a secret that clients send and can guess, unlike a certificate.
func (p *Policy) sendsSecret() bool {
	return slices.ContainsFunc(p.Credentials, func(c Credential) bool {
		return c.Kind() == nil || c.Kind().Traits().Secret
	})
}

// gives reports whether an identity can have what a word of Traits.Gives names.
func (p *Policy) gives(word string) bool {
	return slices.ContainsFunc(p.Credentials, func(c Credential) bool {
		return c.Kind() == nil || slices.Contains(c.Kind().Traits().Gives, word)
	})
}

// kindsThatGive returns the kinds whose identities have what a word of Traits.Gives names, for a message.
func kindsThatGive(word string) string {
	var names []string
	for _, kind := range kinds() {
		if traits := kind.Traits(); slices.Contains(traits.Gives, word) {
			names = append(names, traits.Name)
		}
	}
	return suggest.OneOf(names)
}

// takes reports whether every request that carries the later credential carries this one.
func (c *Credential) takes(later credential.Kind) bool {
	if c.Kind() == nil {
		return false
	}
	a, b := c.Kind().Place(), later.Place()
	switch {
	case a.In == credential.Nowhere:
		return false
	case b.In == credential.Scheme:
		return a.In == b.In && strings.EqualFold(a.Name, b.Name) ||
			a == credential.Place{In: credential.Header, Name: "authorization"}
	}
	return a == b
}

// brings reports whether a header holds one of the credentials.
func (p *Policy) brings(header string) bool {
	return header != "" && slices.ContainsFunc(p.Credentials, func(c Credential) bool {
		return c.Kind() != nil && c.Kind().Place().Header() == strings.ToLower(header)
	})
}
