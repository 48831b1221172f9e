package jwt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// wellKnown follows the issuer in the URL of the document that describes it (OpenID Connect Discovery 1.0, 4).
const wellKnown = "/.well-known/openid-configuration"

// discovery returns the origin that the document of an issuer names. Its name differs from that of an endpoint.
func discovery(issuer string, client *http.Client) origin {
	document := strings.TrimSuffix(issuer, "/") + wellKnown
	read := func(ctx context.Context) (text []byte, fresh time.Duration, err error) {
		ctx, cancel := context.WithTimeout(ctx, client.Timeout) // of both fetches
		defer cancel()
		address := document
		if text, _, err = fetch(ctx, document, client); err == nil {
			address, err = keysURL(issuer, text)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", document, err)
		}
		if text, fresh, err = fetch(ctx, address, client); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", address, err)
		}
		return text, fresh, nil
	}
	return origin{issuer + " (discovery)", "discover keys", fetchFloor, read}
}

// keysURL returns the jwks_uri of a document. Keys of another issuer would let that one sign tokens of this issuer.
func keysURL(issuer string, document []byte) (string, error) {
	var d struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if len(document) > maxDocument {
		return "", fmt.Errorf("it is longer than %d bytes", maxDocument)
	}
	if json.Unmarshal(document, &d) != nil {
		return "", errors.New("it is not a JSON object with the texts `issuer` and `jwks_uri`")
	}
	if d.Issuer != issuer {
		return "", fmt.Errorf("its issuer is %.200q, want %q as in the policy", d.Issuer, issuer)
	}
	u, err := url.Parse(d.Keys)
	if err != nil || u.User != nil || !isSecure(u) || u.Scheme == "http" && !strings.HasPrefix(issuer, "http:") {
		return "", fmt.Errorf("its jwks_uri is %.200q, want an https URL without a user", d.Keys)
	}
	return d.Keys, nil
}

// isSecure reports whether what is read from a URL cannot be changed on the way: over https, or over http on loopback.
func isSecure(u *url.URL) bool {
	return u.Hostname() != "" && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()))
}

// manyTenants are paths of Entra ID in the place of a tenant, for sign-in by users of many tenants.
var manyTenants = []string{"common", "organizations", "consumers", "{tenantid}"}

// checkIssuer reports an issuer that no token has, and one without a URL of keys at which they cannot be discovered.
func (c *Credential) checkIssuer(m *ratelimit.Mistakes, path string) {
	issuer := text(c.Issuer)
	u, err := url.Parse(issuer)
	if issuer == "" {
		return
	}
	if err == nil && (u.Host == "login.microsoftonline.com" || u.Host == "sts.windows.net") {
		tenant, rest, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		if slices.Contains(manyTenants, strings.ToLower(tenant)) {
			m.At(path).Fail("no token has the issuer "+suggest.Quoted(issuer)+": Entra ID writes the ID of a tenant into `iss`",
				"write "+suggest.Quoted("https://"+u.Host+"/<tenant ID>/"+rest)+", as in the `iss` of your tokens")
			return
		}
	}
	if c.JWKSURL != nil || c.JWKSFile != nil {
		return
	}
	if strings.HasSuffix(issuer, wellKnown) {
		m.At(path).Fail("the issuer is written as the URL of its discovery document", "write the `issuer` of that document")
		return
	}
	if err != nil || !isSecure(u) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		m.At(path).Fail("the keys of the issuer "+suggest.Quoted(issuer)+" cannot be discovered",
			"want a URL such as `https://idp.example`; http is for loopback only",
			"or add `jwks_url` or `jwks_file`")
	}
}
