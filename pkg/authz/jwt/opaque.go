package jwt

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Opaque accepts a token about which its issuer is asked (RFC 7662). It is a credential.Kind. An Introspector is its
// Checker.
type Opaque struct {
	credential.Source `yaml:",inline"`
	IntrospectionURL  *string          `yaml:"introspection_url" required:"true" remedy:"add 'introspection_url: <where the issuer answers about tokens>'" doc:"The https URL at which the issuer answers about tokens (RFC 7662). http is for loopback only." example:"https://idp.example/introspect"`
	ClientID          *string          `yaml:"client_id" required:"true" remedy:"add 'client_id: <the name of this service at the issuer>'" doc:"The name of this service at the issuer." example:"extauthz"`
	ClientSecretFile  *string          `yaml:"client_secret_file" required:"true" remedy:"add 'client_secret_file: <the file with its secret>'" doc:"The file with the secret of this service at the issuer. It is read for each call." example:"/etc/extauthz/introspection-secret"`
	ClientAuth        *string          `yaml:"client_auth" doc:"How the secret is sent: basic (the Authorization header) or post (the body)." default:"basic" example:"post"`
	Issuer            *string          `yaml:"issuer" doc:"What iss of the answer must equal." default:"any" example:"https://idp.example"`
	Audiences         []string         `yaml:"audiences" min:"1" doc:"The member aud of the answer must have one of these." default:"any" example:"[shop]"`
	Cache             *time.Duration   `yaml:"cache" doc:"How long an answer is used, at most until exp of the token: 0s to 1h." default:"1m" example:"30s"`
	Forward           bool             `yaml:"forward" doc:"Sends the token of an allowed request to the upstream, as the client sent it." default:"false" example:"true"`
	OwnerClaim        *credential.Path `yaml:"owner_claim" doc:"The member that names the owner. It must be a text." default:"sub" example:"username"`
	PlanClaim         *credential.Path `yaml:"plan_claim" doc:"The member that names the plan. It must be a text." default:"no plan" example:"plan"`
	ScopesClaim       *credential.Path `yaml:"scopes_claim" doc:"The member with the scopes: a list, or a text with spaces between them." default:"scope" example:"scope"`
}

// OpaqueName is the key of opaque tokens in policies.
const OpaqueName = "opaque_token"

// The bounds of Opaque.Cache, and how long the answer is used that a token is not active.
const (
	cacheAtMost = time.Hour
	inactiveFor = 10 * time.Second
)

// Traits returns those of opaque tokens.
func (*Opaque) Traits() credential.Traits {
	return credential.Traits{
		Name: OpaqueName, Scheme: "Bearer", Token: true, Secret: true, Remote: true, Gives: []string{"scope", "claim"},
	}
}

// Place returns the place that is set, by default the scheme Bearer.
func (c *Opaque) Place() credential.Place {
	return cmp.Or(c.Source.Place(), credential.Place{In: credential.Scheme, Name: "Bearer"})
}

// Forwards reports whether the upstream gets a valid token.
func (c *Opaque) Forwards() bool { return c.Forward }

// String returns the URL and the place.
func (c *Opaque) String() string { return text(c.IntrospectionURL) + ", " + c.Place().String() }

// Check reports settings with which the issuer cannot be asked, or not safely.
func (c *Opaque) Check(m *ratelimit.Mistakes, path string) {
	c.claims().check(m, path, map[string]*string{
		"introspection_url": c.IntrospectionURL, "client_id": c.ClientID, "client_secret_file": c.ClientSecretFile,
		"issuer": c.Issuer,
	})
	if address := text(c.IntrospectionURL); address != "" {
		if u, err := url.Parse(address); err != nil || !isSecure(u) || u.User != nil || u.Fragment != "" {
			m.At(path+".introspection_url").Fail("`introspection_url` cannot be "+suggest.Quoted(address),
				"want a URL such as `https://idp.example/introspect`, without a user; http is for loopback only")
		}
	}
	if how := c.ClientAuth; how != nil && *how != "basic" && *how != "post" {
		m.At(path+".client_auth").Fail("`client_auth` cannot be "+suggest.Quoted(*how), "want `basic` or `post`")
	}
	if d := c.lifetime(); d < 0 || d > cacheAtMost {
		m.At(path+".cache").Fail("`cache` cannot be "+suggest.Quoted(d.String()),
			"want `0s` to `1h`: a token that is revoked stays valid for that long")
	}
}

// lifetime returns Cache or its default.
func (c *Opaque) lifetime() time.Duration { return *cmp.Or(c.Cache, new(time.Minute)) }

// claims returns what a token has in common with the answer about one.
func (c *Opaque) claims() *Credential {
	return &Credential{
		Source: c.Source, Audiences: c.Audiences,
		OwnerClaim: c.OwnerClaim, PlanClaim: c.PlanClaim, ScopesClaim: c.ScopesClaim,
	}
}

// judge returns the identity by the answer about a token, or what is wrong with it.
func (c *Opaque) judge(answer map[string]any, now time.Time) (id credential.Identity, err error) {
	if c.Issuer != nil && answer["iss"] != *c.Issuer {
		return id, credential.Invalid("issuer")
	}
	// Keycloak and Hydra also call a refresh token active, and name its type.
	for _, member := range []string{"typ", "token_use"} {
		use, _ := answer[member].(string)
		switch strings.TrimSuffix(strings.ToLower(use), "_token") {
		case "refresh", "offline", "id":
			return id, credential.Invalid("type")
		}
	}
	accepted := func(a string) bool { return slices.Contains(c.Audiences, a) }
	if c.Audiences != nil && !slices.ContainsFunc(listOf(answer["aud"]), accepted) {
		return id, credential.Invalid("audience")
	}
	id = c.claims().identity(answer)
	id.Method = OpaqueName
	expires, notBefore, ok := timesOf(answer)
	switch {
	case id.Owner == "":
		return id, &credential.Error{Cause: "subject", Kind: credential.ErrInvalid, Absent: id.Absent}
	case !ok:
		return id, credential.Invalid("times")
	case !expires.IsZero() && !now.Before(expires):
		return id, &credential.Error{Cause: "expired", Kind: credential.ErrExpired}
	case notBefore.After(now.Add(maxLeeway)): // the issuer has judged by its own clock
		return id, &credential.Error{Cause: "not_yet", Kind: credential.ErrNotYet}
	}
	return id, nil
}
