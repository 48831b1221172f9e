package jwt_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/test/testenv"
)

// bad are the ways in which an endpoint fails. The redirect leads to evil, a server with valid keys of another issuer.
func bad(evil string) map[string]http.HandlerFunc {
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	return map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"404": http.NotFound,
		"204": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, evil, http.StatusFound)
		},
		"HTML":                        text("<!doctype html><title>Sign in</title>"),
		"nothing":                     text(""),
		"{}":                          text("{}"),
		"null keys":                   text(`{"keys":null}`),
		"a list":                      text("[]"),
		"keys that are not a list":    text(`{"keys":{}}`),
		"keys in capitals":            text(`{"KEYS":[]}`),
		"keys twice":                  text(`{"keys":[],"keys":[]}`),
		"half a document":             text(`{"keys":[`),
		"a document and some more":    text(`{"keys":[]}]`),
		"deep nesting of brackets":    text(`{"keys":` + strings.Repeat("[", 1<<18) + strings.Repeat("]", 1<<18) + `}`),
		"brackets in a key, unclosed": text(`{"keys":[{"kty":` + strings.Repeat("[", 1<<20-100)),
		"5 MB of a set":               text(`{"keys":[]` + strings.Repeat(" ", 5<<20) + `}`),
		"5 MB without a length":       func(w http.ResponseWriter, _ *http.Request) { endless(w) },
		"a connection that breaks":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no answer":                   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a body that does not end":    func(w http.ResponseWriter, r *http.Request) { stall(w, r) },
	}
}

func endless(w http.ResponseWriter) {
	for range 5 {
		if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
			return
		}
	}
}

func stall(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte(`{"keys":[`))
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// fetchTimeout ends fetches from endpoints that do not answer. On a busy machine one that does answer can be late, too.
const fetchTimeout = 400 * time.Millisecond

// awaitOwner waits until the token is accepted as Ann's, and lets the keys be fetched again until then.
func awaitOwner(t *testing.T, v *jwt.Verifier, c *clock, settings *jwt.Credential, token string) {
	t.Helper()
	testenv.Eventually(t, func() error {
		got := outcome(v.Identify(t.Context(), settings, token))
		if got == "owner ann" {
			return nil
		}
		c.advance(31 * time.Second)
		return fmt.Errorf("got %q", got)
	}, "the keys")
}

// TestOutage: an endpoint fails, from the start or after it returned keys. A request waits no longer than its deadline,
// even if the endpoint never answers. Keys that were read stay valid. After the outage, the endpoint is used again.
func TestOutage(t *testing.T) {
	s, next, theirs := es256("1"), es256("2"), es256("evil")
	evil := newIssuer(t, s, theirs)
	for name, failure := range bad(evil.URL) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, i := &clock{}, newIssuer(t, s)
			settings := i.settings()
			v := open(t, jwt.Config{Now: c.now, Timeout: fetchTimeout}, settings)
			token := s.sign(t, nil)
			awaitOwner(t, v, c, settings, token)
			before := v.Sources()[0]

			i.answers(failure)
			c.advance(31 * time.Second)
			const deadline = 150 * time.Millisecond
			for _, unknown := range []signer{next, theirs} {
				got := outcome(v.Identify(briefly(t, deadline), settings, unknown.sign(t, nil)))
				if got != "invalid: unknown_key" {
					t.Errorf("for an unknown key got %q", got)
				}
			}
			check(t, v, settings, token, "owner ann")
			check(t, v, settings, s.sign(t, claims{"jti": "not cached"}), "owner ann")
			testenv.Eventually(t, func() error {
				stats := v.Sources()[0]
				if stats.Failures != before.Failures+1 || !stats.LastSuccess.Equal(before.LastSuccess) {
					return fmt.Errorf("stats %+v, before the failure %+v", stats, before)
				}
				return nil
			}, "the failure to be counted")

			i.publish(s, next)
			c.advance(31 * time.Second)
			awaitOwner(t, v, c, settings, next.sign(t, nil))

			i.answers(failure)
			c.advance(24*time.Hour + time.Second)
			late := claims{"exp": c.at(48 * time.Hour)}
			if got := outcome(v.Identify(briefly(t, deadline), settings, s.sign(t, late))); got != "unavailable: no_keys" {
				t.Errorf("with keys that are too old got %q", got)
			}
		})
		t.Run(name+" from the start", func(t *testing.T) {
			t.Parallel()
			c, i := &clock{}, newIssuer(t)
			i.answers(failure)
			settings := i.settings()
			v := open(t, jwt.Config{Now: c.now, Timeout: fetchTimeout}, settings)
			for range 3 {
				got := outcome(v.Identify(briefly(t, 50*time.Millisecond), settings, s.sign(t, nil)))
				if got != "unavailable: no_keys" {
					t.Errorf("got %q", got)
				}
			}
			i.publish(s)
			c.advance(31 * time.Second)
			testenv.Eventually(t, func() error {
				if got := outcome(v.Identify(t.Context(), settings, s.sign(t, nil))); got != "owner ann" {
					return fmt.Errorf("got %q", got)
				}
				return nil
			}, "the keys")
		})
	}
	t.Cleanup(func() {
		if n := len(evil.fetched()); n != 0 {
			t.Errorf("a redirect was followed %d times", n)
		}
	})
}

// TestEndpointDown: no server listens at the URL.
func TestEndpointDown(t *testing.T) {
	s, c, i := es256("1"), &clock{}, newIssuer(t, es256("1"))
	settings := i.settings()
	i.Close()
	v := open(t, jwt.Config{Now: c.now}, settings)
	check(t, v, settings, s.sign(t, nil), "unavailable: no_keys")
}
