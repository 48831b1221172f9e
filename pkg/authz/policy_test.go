package authz_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/authz/mtls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
)

// good is a policy without mistakes, with every kind of credential, as a source without positions makes it.
func good() *authz.Policy {
	return &authz.Policy{
		Credentials: []authz.Credential{
			{APIKey: &apikey.Credential{Source: credential.Source{Header: new("x-api-key")}}},
			{JWT: &jwt.Credential{
				Issuer: new("https://idp.example"), Audiences: []string{"shop"}, Algorithms: []string{"RS256"},
				JWKSURL: new("https://idp.example/keys"),
			}},
			{MTLS: &mtls.Credential{Principals: []string{"spiffe://example.org/*"}}},
		},
		Access: []authz.Access{
			{Path: &authz.PathPattern{Prefix: new("/public/")}, Require: authz.Open}, {Scopes: []string{"read"}},
		},
		Limits: []authz.RateLimit{{Actions: []authz.Action{
			{Credential: &authz.CredentialAction{Field: credential.NewPath("owner")}},
		}}},
		Refused: []authz.RateLimit{{Actions: []authz.Action{{RemoteAddress: &authz.RemoteAddress{}}}}},
	}
}

// TestCheck covers the mistakes of a policy that does not come from a file: values that a reader of YAML refuses, and
// paths in place of positions. The text cases of rule files have all other mistakes.
func TestCheck(t *testing.T) {
	token := func(change func(*jwt.Credential)) func(*authz.Policy) {
		return func(p *authz.Policy) { change(p.Credentials[1].JWT) }
	}
	limit := func(change func(*authz.RateLimit)) func(*authz.Policy) {
		return func(p *authz.Policy) { change(&p.Limits[0]) }
	}
	address := func(a authz.RemoteAddress) func(*authz.Policy) {
		return limit(func(l *authz.RateLimit) { l.Actions = []authz.Action{{RemoteAddress: &a}} })
	}
	keys := func(url string) func(*authz.Policy) { return token(func(j *jwt.Credential) { j.JWKSURL = new(url) }) }
	issuer := func(name string) func(*authz.Policy) {
		return token(func(j *jwt.Credential) { j.Issuer, j.JWKSURL = new(name), nil })
	}
	for _, c := range []struct {
		name   string
		change func(*authz.Policy)
		want   string // "path: message", "" for no mistake
	}{
		{"nothing", func(*authz.Policy) {}, ""},
		{"status", func(p *authz.Policy) { p.Invalid = &authz.Refusal{Status: 200} },
			"invalid.status: `status` cannot be `200`"},
		{"token status", func(p *authz.Policy) { p.Invalid = &authz.Refusal{TokenStatus: 600} },
			"invalid.token_status: `token_status` cannot be `600`"},
		{"a token status in absent", func(p *authz.Policy) { p.Absent = &authz.Refusal{TokenStatus: 401} },
			"absent.token_status: `token_status` in `absent`"},
		{"invalid passes", func(p *authz.Policy) { p.Invalid = &authz.Refusal{Pass: true} },
			"invalid.pass: an invalid credential cannot pass"},
		{"a credential of no kind", func(p *authz.Policy) { p.Credentials = append(p.Credentials, authz.Credential{}) },
			"credentials[3]: an element of `credentials` without `api_key`, `jwt`, `opaque_token` or `mtls`"},
		{"a key nowhere", func(p *authz.Policy) { p.Credentials[0].APIKey.Header = nil },
			"credentials[0].api_key: `api_key` without `header`, `scheme`, `query` or `cookie`"},
		{"the same place twice", func(p *authz.Policy) { p.Credentials[2] = p.Credentials[0] },
			"credentials[2]: this credential is never tried: the one at credentials[0] reads the same place of a request"},
		{"no principals", func(p *authz.Policy) { p.Credentials[2].MTLS.Principals = nil },
			"credentials[2].mtls.principals: `mtls` without `principals`"},
		{"no issuer", token(func(j *jwt.Credential) { j.Issuer = nil }), "credentials[1].jwt.issuer: `jwt` without `issuer`"},
		{"no audiences", token(func(j *jwt.Credential) { j.Audiences = []string{} }),
			"credentials[1].jwt.audiences: `jwt` without `audiences`"},
		{"an empty audience", token(func(j *jwt.Credential) { j.Audiences = []string{"a", ""} }),
			"credentials[1].jwt.audiences[1]: an element of `audiences` is empty"},
		{"no algorithms", token(func(j *jwt.Credential) { j.Algorithms = nil }),
			"credentials[1].jwt.algorithms: `jwt` without `algorithms`"},
		{"none", token(func(j *jwt.Credential) { j.Algorithms = []string{"none"} }),
			"credentials[1].jwt.algorithms[0]: tokens are not accepted with `none`"},
		{"HMAC", token(func(j *jwt.Credential) { j.Algorithms = []string{"HS256"} }),
			"credentials[1].jwt.algorithms[0]: tokens are not accepted with `HS256`"},
		{"encryption", token(func(j *jwt.Credential) { j.Algorithms = []string{"RSA-OAEP"} }),
			"credentials[1].jwt.algorithms[0]: no signature algorithm is named `RSA-OAEP`"},
		{"negative leeway", token(func(j *jwt.Credential) { j.Leeway = -time.Second }),
			"credentials[1].jwt.leeway: `leeway` cannot be `-1s`"},
		{"the most leeway", token(func(j *jwt.Credential) { j.Leeway = time.Minute }), ""},
		{"too much leeway", token(func(j *jwt.Credential) { j.Leeway = time.Minute + 1 }),
			"credentials[1].jwt.leeway: `leeway` cannot be `1m0.000000001s`"},
		{"the issuer alone", issuer("https://idp.example/realms/shop"), ""},
		{"the issuer alone, with a slash", issuer("https://shop.eu.auth0.com/"), ""},
		{"an issuer on this machine", issuer("http://localhost:8080/realms/shop"), ""},
		{"an issuer that is no URL", issuer("idp"),
			"credentials[1].jwt.issuer: the keys of the issuer `idp` cannot be discovered"},
		{"an issuer over http", issuer("http://idp.example"),
			"credentials[1].jwt.issuer: the keys of the issuer `http://idp.example` cannot be discovered"},
		{"an issuer with a user", issuer("https://a@idp.example"),
			"credentials[1].jwt.issuer: the keys of the issuer `https://a@idp.example` cannot be discovered"},
		{"an issuer with a query", issuer("https://idp.example?a=b"),
			"credentials[1].jwt.issuer: the keys of the issuer `https://idp.example?a=b` cannot be discovered"},
		{"an issuer with a fragment", issuer("https://idp.example#a"),
			"credentials[1].jwt.issuer: the keys of the issuer `https://idp.example#a` cannot be discovered"},
		{"an issuer with a broken host", issuer("https://[::1"),
			"credentials[1].jwt.issuer: the keys of the issuer `https://[::1` cannot be discovered"},
		{"many tenants", issuer("https://login.microsoftonline.com/Common/v2.0"),
			"credentials[1].jwt.issuer: no token has the issuer `https://login.microsoftonline.com/Common/v2.0`: " +
				"Entra ID writes the ID of a tenant into `iss`"},
		{"many tenants of version 1", issuer("https://sts.windows.net/{tenantid}/"), "credentials[1].jwt.issuer: " +
			"no token has the issuer `https://sts.windows.net/{tenantid}/`: Entra ID writes the ID of a tenant into `iss`"},
		{"many tenants with a URL of keys", token(func(j *jwt.Credential) {
			j.Issuer = new("https://login.microsoftonline.com/organizations/v2.0")
		}), "credentials[1].jwt.issuer: no token has the issuer `https://login.microsoftonline.com/organizations/v2.0`: " +
			"Entra ID writes the ID of a tenant into `iss`"},
		{"one tenant", issuer("https://login.microsoftonline.com/8c1ee6a6-0b1a-4d7c-8a3a-5f2b3a9f1c11/v2.0"), ""},
		{"a discovery document as keys", keys("https://idp.example/.well-known/openid-configuration"),
			"credentials[1].jwt.jwks_url: `jwks_url` is the URL of a discovery document, which has no keys"},
		{"two places of keys", token(func(j *jwt.Credential) { j.JWKSFile = new("f") }),
			"credentials[1].jwt.jwks_file: `jwks_file` beside `jwks_url`"},
		{"http", keys("http://issuer.example/keys"), "credentials[1].jwt.jwks_url: `jwks_url` cannot be plain http"},
		{"http to this machine, v4", keys("http://127.0.0.2:80/keys"), ""},
		{"http to this machine, v6", keys("http://[::1]:80/keys"), ""},
		{"http to a name that looks like loopback", keys("http://127.0.0.1.evil.example/"),
			"credentials[1].jwt.jwks_url: `jwks_url` cannot be plain http"},
		{"http with localhost as the user", keys("http://localhost@evil.example/"),
			"credentials[1].jwt.jwks_url: `jwks_url` with a user in it"},
		{"file URL", keys("file:///etc/passwd"), "credentials[1].jwt.jwks_url: `jwks_url` cannot be `file:///etc/passwd`"},
		{"no host", keys("https://:443/keys"), "credentials[1].jwt.jwks_url: `jwks_url` cannot be `https://:443/keys`"},
		{"no URL", keys("https://%zz"), "credentials[1].jwt.jwks_url: `jwks_url` cannot be `https://%zz`"},
		{"an empty rule", func(p *authz.Policy) { p.Access[1] = authz.Access{Hosts: []string{}} },
			"access[1]: an access rule without a key"},
		{"an empty method", func(p *authz.Policy) { p.Access[1].Methods = []string{""} },
			"access[1].methods[0]: `` cannot be a method"},
		{"an empty host", func(p *authz.Policy) { p.Access[1].Hosts = []string{""} },
			"access[1].hosts[0]: `` cannot be a host"},
		{"a path of no kind", func(p *authz.Policy) { p.Access[0].Path = &authz.PathPattern{} },
			"access[0].path: a `path` without `exact`, `prefix` or `template`"},
		{"never reached", func(p *authz.Policy) { p.Access = []authz.Access{p.Access[1], p.Access[0]} },
			"access[1]: this rule never applies: the one at access[0] matches all of its requests"},
		{"no actions", limit(func(l *authz.RateLimit) { l.Actions = nil }), "limits[0].actions: a limit without `actions`"},
		{"an empty action", limit(func(l *authz.RateLimit) { l.Actions = []authz.Action{{}} }),
			"limits[0].actions[0]: an element of `actions` without `credential`, " +
				"`request_headers`, `remote_address`, `generic_key`, `header_value_match`, `query_parameter`, `metadata`, " +
				"`method`, `host` or `path`"},
		{"hops", address(authz.RemoteAddress{TrustedHops: -1}),
			"limits[0].actions[0].remote_address.trusted_hops: `trusted_hops` cannot be `-1`"},
		{"IPv4 mask", address(authz.RemoteAddress{IPv4Mask: 33}),
			"limits[0].actions[0].remote_address.ipv4_mask: `ipv4_mask` cannot be `33`"},
		{"IPv6 mask", address(authz.RemoteAddress{IPv6Mask: 129}),
			"limits[0].actions[0].remote_address.ipv6_mask: `ipv6_mask` cannot be `129`"},
		{"negative hits", limit(func(l *authz.RateLimit) { l.Cost.Number = -1 }),
			"limits[0].cost.number: `number` cannot be `-1`"},
		{"too many hits", limit(func(l *authz.RateLimit) { l.Cost.Number = 1_000_000_001 }),
			"limits[0].cost.number: `number` cannot be `1000000001`"},
		{"a header of Envoy's", func(p *authz.Policy) {
			p.Headers = &authz.IdentityHeaders{Plan: new(authz.OptionalHeader("X-Envoy-Plan"))}
		},
			"headers.plan: `x-envoy-plan` cannot be an identity header: Envoy sets it itself"},
		{"a default of another", func(p *authz.Policy) { p.Credentials[0].APIKey.Header = new("X-Auth-Owner") },
			": `x-auth-owner` cannot be an identity header: a credential is in it"},
		{"kept", func(p *authz.Policy) { p.KeepHeaders = []string{"x-api-key"} },
			"keep_headers[0]: `x-api-key` is not one of the headers that are removed"},
	} {
		p := good()
		c.change(p)
		var got []string
		for _, m := range p.Check() {
			got = append(got, m.Path+": "+m.Message)
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, strings.Join(got, "\n     "), c.want)
		}
	}
}

// TestCheckDomain: a policy and rules that do not come from files.
func TestCheckDomain(t *testing.T) {
	p := good()
	var got []string
	nodes := []ratelimit.Node{{Key: "remote_address", Limits: []ratelimit.Limit{{}}}}
	for _, m := range p.CheckDomain(&ratelimit.Domain{Name: "shop", Descriptors: nodes}, ratelimit.CheckOptions{}) {
		got = append(got, fmt.Sprintf("%s: %t: %s: %s", m.Path, m.Warning, m.Message, m.Hints[0]))
	}
	want := []string{"limits[0]: true: this limits nothing: no rule of domain `shop` is for the entries `owner`: " +
		"under `descriptors:` there is no `owner`: add it, with a `rate_limit`"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// FuzzPolicy: no policy makes Check or NewPolicies panic, and one with a mistake refuses every request.
func FuzzPolicy(f *testing.F) {
	f.Add("x-api-key", "https://idp.example/keys", "RS256", "/a", "GET", "example.com", "owner", 401, 24, uint16(0))
	f.Add("", "", "", "", "", "", "", 0, 0, uint16(0xffff))
	f.Add(":path", "http://[::1", "none", "/{a}/{a}", "*", "[::1", "label.<name>", -1, 129, uint16(0x5555))
	f.Fuzz(func(t *testing.T, name, url, algorithm, path, method, host, field string, status, number int, absent uint16) {
		bit := func(n int) bool { return absent&(1<<n) != 0 }
		optional := func(n int, text string) *string {
			if bit(n) {
				return nil
			}
			return new(text)
		}
		optionalPath := func(n int, text string) *credential.Path {
			if bit(n) {
				return nil
			}
			return credential.NewPath(text)
		}
		p := &authz.Policy{
			Credentials: []authz.Credential{
				{APIKey: &apikey.Credential{Source: credential.Source{Header: optional(0, name), Query: optional(1, name)}}},
				{JWT: &jwt.Credential{
					Source: credential.Source{Cookie: optional(2, name)}, Issuer: optional(3, name), Audiences: []string{name},
					Algorithms: []string{algorithm}, JWKSURL: optional(4, url), OwnerClaim: optionalPath(5, field),
				}},
			},
			Anonymous: authz.Permission(bit(6)), UnsafePaths: authz.Permission(bit(7)),
			Absent: &authz.Refusal{Status: status, Pass: bit(8)}, Invalid: &authz.Refusal{TokenStatus: status},
			Access: []authz.Access{
				{
					Hosts: []string{host}, Methods: []string{method},
					Path: &authz.PathPattern{Exact: optional(9, path), Template: optional(10, path)},
				},
				{Path: &authz.PathPattern{Prefix: optional(11, path)}, Require: authz.Requirement(number)},
			},
			Limits: []authz.RateLimit{{
				Actions: []authz.Action{
					{Credential: &authz.CredentialAction{Field: optionalPath(12, field)}},
					{RemoteAddress: &authz.RemoteAddress{TrustedHops: number, IPv4Mask: number, IPv6Mask: status}},
					{HeaderValueMatch: &authz.HeaderValueMatch{
						Header: optional(13, name), Value: optional(14, host), Pattern: optional(15, host),
					}},
				},
				Cost: authz.Cost{Number: int64(number), Header: optional(0, name)},
			}},
			Headers:     &authz.IdentityHeaders{Owner: new(authz.OptionalHeader(name))},
			KeepHeaders: []string{name},
		}
		wrong := slices.ContainsFunc(p.Check(), func(m ratelimit.Mistake) bool { return !m.Warning })
		p.CheckDomain(&ratelimit.Domain{Descriptors: []ratelimit.Node{{Key: field, Value: host}}}, ratelimit.CheckOptions{})
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter := ratelimit.New(ratelimit.Config{Store: store, Fallback: store})
		rules := ratelimit.NewRules(nil, ratelimit.RulesOptions{})
		policies := authz.NewPolicies(map[string]*authz.Policy{"d": p}, rules, reply.Headers{})
		a := decider{authz.New(authz.Config{Policies: func() *authz.Policies { return policies }}), limiter}
		d := a.decide(t.Context(), &authz.Request{
			HTTP: true, Method: method, Host: host, Path: path, Headers: authz.Headers{{Name: name, Value: field}},
		})
		if wrong && (d.Verdict != authz.Refused || d.Reason != reply.ReasonNoPolicy) {
			t.Errorf("%+v: a policy with mistakes decides: %+v", p, d)
		}
		if d.Verdict != authz.Allowed && d.Status < 400 {
			t.Errorf("%+v: refused with status %d", p, d.Status)
		}
	})
}
