package service

import (
	"bytes"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestUntrustedHopsAreSaidOnceAMinute checks that the first request logs a warning, and later ones only after a minute.
func TestUntrustedHopsAreSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		warn := warnOfHops(slog.New(slog.NewTextHandler(&out, nil)))
		for _, c := range []struct {
			wait time.Duration
			said int
		}{{0, 1}, {0, 1}, {time.Minute - time.Nanosecond, 1}, {time.Nanosecond, 2}, {time.Second, 2}, {time.Hour, 3}} {
			time.Sleep(c.wait)
			warn(authz.UntrustedHops{Domain: "shop"})
			if got := strings.Count(out.String(), "level=WARN"); got != c.said {
				t.Errorf("%v later: said %d times, want %d\n%s", c.wait, got, c.said, out.String())
			}
		}
		for _, want := range []string{"use_remote_address: true", "domain=shop"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in %s", want, out.String())
			}
		}
	})
}

// TestAddressesOverHTTP checks the limit on refused requests by address, which Envoy sends over HTTP only in a header.
func TestAddressesOverHTTP(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRootWith(t, testenv.RepoFile(t, "envoy-gateway/service/rules/demo.yaml"))
	for _, c := range []struct {
		header string
		warns  bool
	}{{"", true}, {"x-envoy-source", false}} {
		env := configured(func(s *settings.Settings) {
			s.Rules.Root = root
			s.Keys.Secret = "a-server-secret-of-a-test"
			s.Keys.File = filepath.Join(root, "keys.jsonl")
		})
		keys(t, env, "create", "--file", env.Keys.File, "--owner", "alice")
		if c.header != "" {
			env.Authorization.SourceHeader = c.header
		}
		_, httpAddr, _, out := start(t, env)
		response, err := http.Get("http://" + httpAddr + "/check/")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		const warning = "name its header in AUTHZ_HTTP_SOURCE_HEADER"
		if c.warns {
			logged(t, out, warning)
		} else if strings.Contains(logged(t, out, "msg=decided"), warning) {
			t.Errorf("AUTHZ_HTTP_SOURCE_HEADER=%q: a warning in\n%s", c.header, out)
		}
	}
}

// TestRefusedByGatewayOverHTTP: Envoy Gateway sends no address over HTTP, so one client must not use up the limit on
// refused requests for all others.
func TestRefusedByGatewayOverHTTP(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRootWith(t, testenv.RepoFile(t, "envoy-gateway/service/rules/demo.yaml"))
	env := configured(func(s *settings.Settings) {
		s.Rules.Root = root
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Keys.File = filepath.Join(root, "keys.jsonl")
	})
	keys(t, env, "create", "--file", env.Keys.File, "--owner", "alice")
	_, httpAddr, _, _ := start(t, env)
	for i := range 40 {
		response, err := http.Get("http://" + httpAddr + "/check/")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized || response.Header.Get("Www-Authenticate") == "" {
			t.Fatalf("request %d without a key: %s, want 401 with www-authenticate", i, response.Status)
		}
	}
}

// TestSecretOfIntrospection checks that the service reports a secret that it cannot read with the rules, not only with
// the first token.
func TestSecretOfIntrospection(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	root := testenv.RulesRootWith(t, "domain: shop\nauthz:\n  credentials:\n    - opaque_token: {client_id: shop, "+
		"introspection_url: https://idp.example/introspect, client_secret_file: "+secret+"}\n"+
		"  refused: [{actions: [{remote_address: }]}]\n"+
		"descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
	_, _, _, out := start(t, configured(func(s *settings.Settings) { s.Rules.Root = root }))
	logged(t, out, "(client_secret_file); until it can be read", "url=https://idp.example/introspect",
		secret+": no such file")
}
