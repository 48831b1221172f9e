package authz

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// maxCredentials is the largest number of credentials: each is looked for in every request.
const maxCredentials = 32

// maxLeeway is the largest leeway: a stolen token must not stay valid for long after it has expired.
const maxLeeway = time.Minute

// signatureAlgorithms are the accepted algorithms (RFC 7518, RFC 8037): those with a public key. "none" is not a
// signature, and HMAC needs a secret that the service shares with the issuer.
var signatureAlgorithms = [...]string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// checkCredentials checks the credentials, and reports those that are never tried.
func (c *checker) checkCredentials() {
	for i := range c.Credentials {
		one, path := &c.Credentials[i], ratelimit.Element("credentials", i)
		if i == maxCredentials {
			c.At(path).Fail(
				fmt.Sprintf("more than %d credentials", maxCredentials), "each is looked for in every request: join some")
			return
		}
		switch {
		case one.APIKey != nil:
			c.checkSource(path+".api_key", one.APIKey.Source)
		case one.JWT != nil:
			c.checkJWT(path+".jwt", one.JWT)
		}
		if k := slices.IndexFunc(c.Credentials[:i], func(earlier Credential) bool { return earlier.takes(one) }); k >= 0 {
			earlier := ratelimit.Element("credentials", k)
			c.At(path, slices.Concat(sourcePaths(path), sourcePaths(earlier))...).Fail(
				"this credential is never tried: the one at "+cmp.Or(c.Credentials[k].Position, earlier)+
					" reads the same place of a request",
				"the first that a request carries decides: give one of them another place, or join them")
		}
	}
}

// sourcePaths returns the paths of all keys of the Source of a credential.
func sourcePaths(credential string) []string {
	keys := []string{"header", "scheme", "query", "cookie"}
	return append(below(credential+".api_key", keys...), below(credential+".jwt", keys...)...)
}

// sendsSecret reports whether a credential is a secret that clients send and can guess, unlike a certificate.
func (p *Policy) sendsSecret() bool {
	return slices.ContainsFunc(p.Credentials, func(c Credential) bool { return c.MTLS == nil })
}

// takes reports whether every request that carries the later credential carries this one.
func (c *Credential) takes(later *Credential) bool {
	a, b := c.source().compile(), later.source().compile()
	switch {
	case a.in == nowhere:
		return c.MTLS != nil && later.MTLS != nil
	case b.in == inScheme:
		return a.in == inScheme && strings.EqualFold(a.name, b.name) || a == place{inHeader, "authorization"}
	}
	return a == b
}

// source returns the place of the credential, by default the scheme Bearer for a token. Names of headers are in lower
// case.
func (c *Credential) source() (s Source) {
	switch {
	case c.APIKey != nil:
		s = c.APIKey.Source
	case c.JWT != nil && c.JWT.Source == (Source{}):
		s.Scheme = new("Bearer")
	case c.JWT != nil:
		s = c.JWT.Source
	}
	if s.Header != nil {
		s.Header = new(strings.ToLower(*s.Header))
	}
	return s
}

// brings reports whether a header holds one of the credentials.
func (p *Policy) brings(header string) bool {
	return header != "" && slices.ContainsFunc(p.Credentials, func(c Credential) bool {
		return c.source().compile().header() == strings.ToLower(header)
	})
}

// checkSource checks the place of a request where a credential is.
func (c *checker) checkSource(path string, s Source) {
	switch header := strings.ToLower(text(s.Header)); {
	case header == "cookie":
		c.At(path+".header").Fail("the header `cookie` has many values", "for one cookie, write `cookie: <its name>`")
	case slices.Contains(hopByHop[:], header), header == "host", header == "content-length":
		c.At(path+".header").Fail(
			suggest.Quoted(header)+" cannot carry a credential: Envoy and HTTP use it themselves",
			"choose a header such as `x-api-key`")
	case s.Scheme != nil && !isToken(*s.Scheme):
		c.At(path+".scheme").Fail(suggest.Quoted(*s.Scheme)+" cannot be a scheme of the Authorization header",
			"want one word, such as `ApiKey` or `Bearer`")
	case s.Query != nil && (*s.Query == "" || strings.ContainsAny(*s.Query, "?&=#")):
		c.At(path+".query").Fail(suggest.Quoted(*s.Query)+" cannot be the name of a query parameter",
			"want the name alone, such as `api_key`")
	case s.Cookie != nil && !isToken(*s.Cookie):
		c.At(path+".cookie").Fail(
			suggest.Quoted(*s.Cookie)+" cannot be the name of a cookie", "want the name alone, such as `session`")
	}
}

// checkJWT reports settings with which tokens cannot be checked, or not safely.
func (c *checker) checkJWT(path string, j *JWT) {
	c.checkSource(path, j.Source)
	if i := slices.Index(j.Audiences, ""); i >= 0 {
		c.At(ratelimit.Element(path+".audiences", i)).Fail("an element of `audiences` is empty", "delete it")
	}
	c.checkAlgorithms(path+".algorithms", j.Algorithms)
	c.checkKeysURL(path+".jwks_url", text(j.JWKSURL))
	switch leeway := suggest.Quoted(j.Leeway.String()); {
	case j.Leeway < 0:
		c.At(path+".leeway").Fail("`leeway` cannot be "+leeway, "want 0 or more")
	case j.Leeway > maxLeeway:
		c.At(path+".leeway").Fail(
			"`leeway` cannot be "+leeway, "want at most `1m`: a token stays valid for that long after it expires")
	}
}

func (c *checker) checkAlgorithms(path string, names []string) {
	known := signatureAlgorithms[:]
	want := "want one of " + suggest.OneOf(known)
	for i, name := range names {
		at := ratelimit.Element(path, i)
		switch {
		case slices.Contains(known, name):
		case strings.HasPrefix(strings.ToUpper(name), "HS"):
			c.At(at).Fail("tokens are not accepted with "+suggest.Quoted(name),
				"the key that checks such a token also makes tokens, so this service must not have it",
				want)
		case strings.EqualFold(name, "none"):
			c.At(at).Fail(
				"tokens are not accepted with "+suggest.Quoted(name), "such a token is not signed: every client can make one", want)
		default:
			c.At(at).Fail("no signature algorithm is named "+suggest.Quoted(name), suggest.DidYouMean(name, known), want)
		}
	}
}

// checkKeysURL demands https except on loopback: an attacker who can change the keys in transit can sign tokens.
func (c *checker) checkKeysURL(path, address string) {
	if address == "" {
		return
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		c.At(path).Fail("`jwks_url` cannot be "+suggest.Quoted(address),
			"want a URL such as `https://idp.example/.well-known/jwks.json`; for a file write `jwks_file`")
	case u.User != nil:
		c.At(path).Fail("`jwks_url` with a user in it", "the keys are public: write the URL without the user")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		c.At(path).Fail("`jwks_url` cannot be plain http",
			"an attacker who can change the response can make tokens: write `https://`; http is for loopback only")
	}
}

// isLoopback reports whether a host is localhost or a loopback address.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
