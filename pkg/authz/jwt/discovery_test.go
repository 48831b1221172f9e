package jwt_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/test/testenv"
)

const discoveryPath = "/realms/shop/.well-known/openid-configuration"

// discovered are settings without the place of keys.
func discovered(issuer string) *jwt.Credential {
	c := settingsFor("")
	c.Issuer, c.JWKSURL = new(issuer), nil
	return c
}

// describe makes the issuer answer with a document, and with keys at all other paths.
func (i *issuer) describe(described any, keys ...signer) {
	text, isText := described.(string)
	if !isText {
		text = string(must(json.Marshal(described)))
	}
	set := document(keys...)
	i.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == discoveryPath {
			_, _ = w.Write([]byte(text))
			return
		}
		_, _ = w.Write(set)
	})
}

// TestDiscovery: an issuer without a path of keys is described by its document, whose URL has no doubled slash. Its
// keys are read again as those of a URL: an unknown key causes one reading in 30 s, and keys stay after an error.
func TestDiscovery(t *testing.T) {
	for _, slash := range []string{"", "/"} {
		s, next, c, i := es256("1"), es256("2"), &clock{}, newIssuer(t)
		name := i.URL + "/realms/shop" + slash
		described := map[string]any{"issuer": name, "jwks_uri": i.URL + "/certs", "claims_supported": []string{"aud"}}
		i.describe(described, s)
		settings := discovered(name)
		v := open(t, jwt.Config{Now: c.now}, settings)
		iss := claims{"iss": name}
		check(t, v, settings, s.sign(t, iss), "owner ann")
		check(t, v, settings, s.sign(t, claims{"iss": i.URL + "/realms/shop/x"}), "invalid: issuer")
		if got, want := paths(i), discoveryPath+" /certs"; got != want {
			t.Errorf("fetched %q, want %q", got, want)
		}
		if got := v.Sources()[0]; got.Name != name+" (discovery)" || got.Keys != 1 {
			t.Errorf("got the source %+v", got)
		}

		i.describe(described, s, next)
		check(t, v, settings, next.sign(t, iss), "invalid: unknown_key") // too soon
		c.advance(31 * time.Second)
		check(t, v, settings, next.sign(t, iss), "owner ann")
		if got, want := paths(i), strings.Repeat(discoveryPath+" /certs ", 2); got+" " != want {
			t.Errorf("fetched %q, want %q", got, want)
		}

		i.describe(map[string]any{"issuer": "https://evil.example", "jwks_uri": i.URL + "/certs"}, es256("evil"))
		c.advance(31 * time.Second)
		check(t, v, settings, es256("evil").sign(t, iss), "invalid: unknown_key")
		check(t, v, settings, s.sign(t, claims{"iss": name, "jti": "not cached"}), "owner ann")
		c.advance(24*time.Hour + time.Second)
		late := claims{"iss": name, "exp": c.at(48 * time.Hour)}
		check(t, v, settings, s.sign(t, late), "unavailable: no_keys")
	}
}

// paths are the paths of the fetches so far.
func paths(i *issuer) string {
	var list []string
	for _, f := range i.fetched() {
		list = append(list, f.path)
	}
	return strings.Join(list, " ")
}

// TestDiscoveryRefuses: no key is trusted because of a document of another issuer, of one that names keys over plain
// HTTP, or of one that cannot be read. The error has the URL and the value.
func TestDiscoveryRefuses(t *testing.T) {
	evil := newIssuer(t, es256("1"))
	for _, c := range []struct{ name, issuer, document, want string }{
		{"another issuer", "", `{"issuer":"https://evil.example","jwks_uri":"KEYS"}`,
			`its issuer is "https://evil.example", want "NAME" as in the policy`},
		{"a slash at the end", "", `{"issuer":"NAME/","jwks_uri":"KEYS"}`, `its issuer is "NAME/", want "NAME"`},
		{"no slash at the end", "/", `{"issuer":"NAME","jwks_uri":"KEYS"}`, `its issuer is "NAME", want "NAME/"`},
		{"a template", "", `{"issuer":"https://login.microsoftonline.com/{tenantid}/v2.0","jwks_uri":"KEYS"}`,
			`its issuer is "https://login.microsoftonline.com/{tenantid}/v2.0"`},
		{"no issuer", "", `{"jwks_uri":"KEYS"}`, `its issuer is ""`},
		{"an issuer in capitals", "", `{"ISSUER":"NAME","jwks_uri":"KEYS"}`, `its issuer is ""`},
		{"no keys", "", `{"issuer":"NAME"}`, `its jwks_uri is "", want an https URL`},
		{"http", "", `{"issuer":"NAME","jwks_uri":"http://keys.example/"}`, `its jwks_uri is "http://keys.example/"`},
		{"a file", "", `{"issuer":"NAME","jwks_uri":"file:///etc/passwd"}`, `its jwks_uri is "file:///etc/passwd"`},
		{"a user", "", `{"issuer":"NAME","jwks_uri":"https://a:b@keys.example/"}`, `want an https URL without a user`},
		{"a path", "", `{"issuer":"NAME","jwks_uri":"/certs"}`, `its jwks_uri is "/certs"`},
		{"twice", "", `{"issuer":"NAME","jwks_uri":"EVIL","jwks_uri":"KEYS"}`, "it is not a JSON object"},
		{"a number", "", `{"issuer":"NAME","jwks_uri":7}`, "it is not a JSON object"},
		{"a list", "", `[]`, "it is not a JSON object"},
		{"HTML", "", `<!doctype html>`, "it is not a JSON object"},
		{"too long", "", strings.Repeat(" ", 1<<20) + `{"issuer":"NAME","jwks_uri":"KEYS"}`,
			"it is longer than 1048576 bytes"},
		{"a redirect", "", "", "the status is 302, want 200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, i, clock := es256("1"), newIssuer(t), &clock{}
			fill := strings.NewReplacer("NAME", i.URL+"/realms/shop", "KEYS", i.URL+"/certs", "EVIL", evil.URL)
			i.describe(fill.Replace(c.document), s)
			if c.document == "" {
				i.answers(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, evil.URL, http.StatusFound) })
			}
			var mu sync.Mutex
			var reported error
			settings := discovered(i.URL + "/realms/shop" + c.issuer)
			v := open(t, jwt.Config{Now: clock.now, OnReading: func(r jwt.Reading) {
				mu.Lock()
				defer mu.Unlock()
				reported = r.Err
			}}, settings)
			check(t, v, settings, s.sign(t, claims{"iss": *settings.Issuer}), "unavailable: no_keys")
			testenv.Eventually(t, func() error {
				mu.Lock()
				defer mu.Unlock()
				want := "discover keys: " + i.URL + discoveryPath + ": "
				if got := fmt.Sprint(reported); !strings.HasPrefix(got, want) || !strings.Contains(got, fill.Replace(c.want)) {
					return fmt.Errorf("the error is %q, want %q", got, fill.Replace(c.want))
				}
				return nil
			}, "the error")
			if got := paths(i); strings.Contains(got, "certs") {
				t.Errorf("fetched %q, want no keys", got)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(evil.fetched()); n != 0 {
			t.Errorf("a redirect was followed, or keys were fetched from another issuer, %d times", n)
		}
	})
}

// TestDiscoveryWithoutKeys: the document is right, but the keys cannot be fetched.
func TestDiscoveryWithoutKeys(t *testing.T) {
	i, s := newIssuer(t), es256("1")
	name := i.URL + "/realms/shop"
	i.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != discoveryPath {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": name, "jwks_uri": i.URL + "/certs"})
	})
	errs := make(chan error, 1)
	settings := discovered(name)
	v := open(t, jwt.Config{Now: new(clock).now, OnReading: func(r jwt.Reading) { errs <- r.Err }}, settings)
	check(t, v, settings, s.sign(t, claims{"iss": name}), "unavailable: no_keys")
	if got, want := fmt.Sprint(<-errs), "discover keys: "+i.URL+"/certs: the status is 404, want 200"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDiscoveryBesideURL: an issuer, the same with a slash, and a jwks_url with the same text have keys of their own.
func TestDiscoveryBesideURL(t *testing.T) {
	s, other, i := es256("1"), es256("2"), newIssuer(t)
	name := i.URL + "/realms/shop"
	i.answers(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case discoveryPath:
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": name, "jwks_uri": i.URL + "/certs"})
		case "/certs":
			_, _ = w.Write(document(s))
		default:
			_, _ = w.Write(document(other))
		}
	})
	right, slash, url := discovered(name), discovered(name+"/"), settingsFor(name)
	url.Issuer = new(name)
	v := open(t, jwt.Config{Now: new(clock).now}, right, slash, url)
	token := s.sign(t, claims{"iss": name})
	check(t, v, right, token, "owner ann")
	check(t, v, slash, s.sign(t, claims{"iss": name + "/"}), "unavailable: no_keys")
	check(t, v, url, token, "invalid: unknown_key")
	check(t, v, url, other.sign(t, claims{"iss": name}), "owner ann")
}
