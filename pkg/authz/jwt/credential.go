package jwt

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Credential accepts a signed token of one issuer. It is a credential.Kind, and a Verifier is its Checker.
type Credential struct {
	credential.Source `yaml:",inline"`
	Issuer            *string          `yaml:"issuer" required:"true" remedy:"add 'issuer: <the iss of the tokens>'" doc:"The issuer. The claim iss of a token must equal it." example:"https://idp.example"`
	Audiences         []string         `yaml:"audiences" required:"true" remedy:"add 'audiences: [<an aud of the tokens>]': without it, tokens for other services would be valid here" min:"1" doc:"The claim aud of a token must have one of these." example:"[shop]"`
	Algorithms        []string         `yaml:"algorithms" required:"true" remedy:"add 'algorithms: [RS256]', or those that the issuer signs with" min:"1" doc:"The accepted signature algorithms: RS, PS or ES with 256, 384 or 512, and EdDSA." example:"[RS256]"`
	Leeway            time.Duration    `yaml:"leeway" doc:"How far the clocks of the issuer and of this service may differ, at most 1m." default:"0s" example:"30s"`
	Forward           bool             `yaml:"forward" doc:"Sends the token of an allowed request to the upstream, as the client sent it." default:"false" example:"true"`
	JWKSURL           *string          `yaml:"jwks_url" oneof:"keys,optional" doc:"The https URL of the public keys of the issuer (a JWK Set). http is for loopback only." default:"discovered by issuer" example:"https://idp.example/.well-known/jwks.json"`
	JWKSFile          *string          `yaml:"jwks_file" oneof:"keys,optional" doc:"The file with the public keys of the issuer (a JWK Set)." example:"/etc/extauthz/keys.json"`
	OwnerClaim        *credential.Path `yaml:"owner_claim" doc:"The claim that names the owner. It must be a text." default:"sub" example:"client_id"`
	PlanClaim         *credential.Path `yaml:"plan_claim" doc:"The claim that names the plan. It must be a text." default:"no plan" example:"plan"`
	ScopesClaim       *credential.Path `yaml:"scopes_claim" doc:"The claim with the scopes: a list, or a text with spaces between them." default:"scope" example:"realm_access.roles"`
}

// Name is the key of tokens in policies.
const Name = "jwt"

// maxLeeway is the largest leeway: a stolen token must not stay valid for long after it has expired.
const maxLeeway = time.Minute

// signatureAlgorithms are those with a public key (RFC 7518, RFC 8037): neither "none" nor HMAC.
var signatureAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// Traits returns those of tokens.
func (*Credential) Traits() credential.Traits {
	return credential.Traits{
		Name: Name, Scheme: "Bearer", Token: true, Secret: true, Gives: []string{"scope", "claim"},
	}
}

// Place returns the place that is set, by default the scheme Bearer.
func (c *Credential) Place() credential.Place {
	return cmp.Or(c.Source.Place(), credential.Place{In: credential.Scheme, Name: "Bearer"})
}

// Forwards reports whether the upstream gets a valid token.
func (c *Credential) Forwards() bool { return c.Forward }

// String returns the issuer and the place.
func (c *Credential) String() string { return text(c.Issuer) + ", " + c.Place().String() }

// Check reports settings with which tokens cannot be checked, or not safely.
func (c *Credential) Check(m *ratelimit.Mistakes, path string) {
	c.check(m, path, map[string]*string{"issuer": c.Issuer, "jwks_file": c.JWKSFile, "jwks_url": c.JWKSURL})
	c.checkIssuer(m, path+".issuer")
	checkAlgorithms(m, path+".algorithms", c.Algorithms)
	checkKeysURL(m, path+".jwks_url", text(c.JWKSURL))
	switch leeway := suggest.Quoted(c.Leeway.String()); {
	case c.Leeway < 0:
		m.At(path+".leeway").Fail("`leeway` cannot be "+leeway, "want 0 or more")
	case c.Leeway > maxLeeway:
		m.At(path+".leeway").Fail(
			"`leeway` cannot be "+leeway, "want at most `1m`: a token stays valid for that long after it expires")
	}
}

// check reports mistakes in the place, the claims, the audiences and texts.
func (c *Credential) check(m *ratelimit.Mistakes, path string, texts map[string]*string) {
	c.Source.Check(m, path)
	for key, value := range texts {
		if value != nil && *value == "" {
			m.At(path+"."+key).Fail(suggest.Quoted(key)+" is empty", "write its value, or delete the key")
		}
	}
	c.OwnerClaim.Check(m, path+".owner_claim")
	c.PlanClaim.Check(m, path+".plan_claim")
	c.ScopesClaim.Check(m, path+".scopes_claim")
	if i := slices.Index(c.Audiences, ""); i >= 0 {
		m.At(ratelimit.Element(path+".audiences", i)).Fail("an element of `audiences` is empty", "delete it")
	}
}

func checkAlgorithms(m *ratelimit.Mistakes, path string, names []string) {
	known := signatureAlgorithms
	want := "want one of " + suggest.OneOf(known)
	for i, name := range names {
		at := ratelimit.Element(path, i)
		switch {
		case slices.Contains(known, name):
		case strings.HasPrefix(strings.ToUpper(name), "HS"):
			m.At(at).Fail("tokens are not accepted with "+suggest.Quoted(name),
				"the key that checks such a token also makes tokens, so this service must not have it",
				want)
		case strings.EqualFold(name, "none"):
			m.At(at).Fail(
				"tokens are not accepted with "+suggest.Quoted(name), "such a token is not signed: every client can make one", want)
		default:
			m.At(at).Fail("no signature algorithm is named "+suggest.Quoted(name), suggest.DidYouMean(name, known), want)
		}
	}
}

// checkKeysURL demands https except on loopback: an attacker who can change the keys in transit can sign tokens.
func checkKeysURL(m *ratelimit.Mistakes, path, address string) {
	if address == "" {
		return
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		m.At(path).Fail("`jwks_url` cannot be "+suggest.Quoted(address),
			"want a URL such as `https://idp.example/.well-known/jwks.json`; for a file write `jwks_file`")
	case u.User != nil:
		m.At(path).Fail("`jwks_url` with a user in it", "the keys are public: write the URL without the user")
	case strings.HasSuffix(u.Path, wellKnown):
		m.At(path).Fail("`jwks_url` is the URL of a discovery document, which has no keys",
			"delete `jwks_url`: `issuer` alone finds the document and the keys")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		m.At(path).Fail("`jwks_url` cannot be plain http",
			"an attacker who can change the response can make tokens: write `https://`; http is for loopback only")
	}
}

// isLoopback reports whether a host is localhost or a loopback address.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
