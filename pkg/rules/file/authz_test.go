package file

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/authz/mtls"
)

// TestParseBuildsThePolicy: Parse does not set defaults.
func TestParseBuildsThePolicy(t *testing.T) {
	apiKey := func(s credential.Source) authz.Credential {
		return authz.Credential{APIKey: &apikey.Credential{Source: s}}
	}
	for _, c := range []struct {
		name, yaml string
		change     func(*authz.Policy) // of the policy `anonymous: allow`
	}{
		{name: "anonymous only", yaml: `anonymous: allow`, change: func(*authz.Policy) {}},
		{
			name: "places of API keys",
			yaml: `credentials: [{api_key: {header: X-API-Key}}, {api_key: {scheme: ApiKey}}, {api_key: {query: apiKey}}, ` +
				`{api_key: {cookie: Key}}]`,
			change: func(p *authz.Policy) {
				p.Anonymous = authz.Deny
				p.Credentials = []authz.Credential{
					apiKey(credential.Source{Header: new("X-API-Key")}), apiKey(credential.Source{Scheme: new("ApiKey")}),
					apiKey(credential.Source{Query: new("apiKey")}), apiKey(credential.Source{Cookie: new("Key")}),
				}
			},
		},
		{
			name: "a JWT with its defaults",
			yaml: `credentials: [{jwt: {issuer: https://idp.example, audiences: [shop], algorithms: [RS256],
				jwks_url: https://idp.example/keys}}]`,
			change: func(p *authz.Policy) {
				p.Anonymous = authz.Deny
				p.Credentials = []authz.Credential{{JWT: &jwt.Credential{
					Issuer: new("https://idp.example"), Audiences: []string{"shop"}, Algorithms: []string{"RS256"},
					JWKSURL: new("https://idp.example/keys"),
				}}}
			},
		},
		{
			name: "every key of a JWT",
			yaml: `credentials: [{jwt: {header: X-Token, issuer: i, audiences: [a, b],
				algorithms: [RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA],
				leeway: 1m, jwks_file: /etc/keys.json, owner_claim: o, plan_claim: p.q, scopes_claim: [s, t.u, 0]}}]`,
			change: func(p *authz.Policy) {
				p.Anonymous = authz.Deny
				p.Credentials = []authz.Credential{{JWT: &jwt.Credential{
					Source: credential.Source{Header: new("X-Token")}, Issuer: new("i"), Audiences: []string{"a", "b"},
					Algorithms: strings.Fields("RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA"),
					Leeway:     time.Minute, JWKSFile: new("/etc/keys.json"),
					OwnerClaim: credential.NewPath("o"), PlanClaim: credential.NewPath("p.q"),
					ScopesClaim: &credential.Path{Names: []string{"s", "t.u", "0"}},
				}}}
			},
		},
		{
			name: "certificates",
			yaml: `credentials: [{mtls: {principals: ["spiffe://a/*", b]}}]`,
			change: func(p *authz.Policy) {
				p.Anonymous = authz.Deny
				p.Credentials = []authz.Credential{{MTLS: &mtls.Credential{Principals: []string{"spiffe://a/*", "b"}}}}
			},
		},
		{
			name: "refusals, preflights and unsafe paths",
			yaml: `{credentials: [{api_key: {header: a}}], absent: {pass: true}, invalid: {status: 401, token_status: 402},
				preflight: allow, unsafe_paths: allow}`,
			change: func(p *authz.Policy) {
				p.Anonymous, p.Preflight, p.UnsafePaths = authz.Deny, authz.Allow, authz.Allow
				p.Credentials = []authz.Credential{apiKey(credential.Source{Header: new("a")})}
				p.Absent, p.Invalid = &authz.Refusal{Pass: true}, &authz.Refusal{Status: 401, TokenStatus: 402}
			},
		},
		{
			name: "access rules",
			yaml: `{credentials: [{api_key: {header: a}}], access: [
				{path: {prefix: /a/}, require: open}, {path: {exact: /b}, require: credential},
				{methods: [GET, PUT], hosts: [A.example., "*.b", "2001:DB8:0::1", "[::1]"], path: {template: "/c/{id}"},
					scopes: [x, y]}, {require: denied}]}`,
			change: func(p *authz.Policy) {
				p.Anonymous = authz.Deny
				p.Credentials = []authz.Credential{apiKey(credential.Source{Header: new("a")})}
				p.Access = []authz.Access{
					{Path: &authz.PathPattern{Prefix: new("/a/")}, Require: authz.Open, Position: "f:3"},
					{Path: &authz.PathPattern{Exact: new("/b")}, Require: authz.NeedCredential, Position: "f:3"},
					{
						Methods: []string{"GET", "PUT"}, Hosts: []string{"A.example.", "*.b", "2001:DB8:0::1", "[::1]"},
						Path: &authz.PathPattern{Template: new("/c/{id}")}, Scopes: []string{"x", "y"}, Position: "f:4",
					},
					{Require: authz.Denied, Position: "f:5"},
				}
			},
		},
		{
			name: "actions with their defaults",
			yaml: `{anonymous: allow, limits: [{actions: [{generic_key: {value: a}}, {request_headers: {header: X-B, key: b}},
				{remote_address: }, {header_value_match: {header: X-C, value: c}}, {query_parameter: {parameter: d, key: d}},
				{metadata: {key: e, path: [f, g]}}, {credential: {field: owner}}, {method: }, {host: }, {path: {}}]}]}`,
			change: func(p *authz.Policy) {
				p.Limits = []authz.RateLimit{{Position: "f:2", Actions: []authz.Action{
					{GenericKey: &authz.GenericKey{Value: new("a")}},
					{RequestHeaders: &authz.RequestHeaders{Key: new("b"), Header: new("X-B")}},
					{RemoteAddress: &authz.RemoteAddress{}},
					{HeaderValueMatch: &authz.HeaderValueMatch{Value: new("c"), Header: new("X-C")}},
					{QueryParameter: &authz.QueryParameter{Key: new("d"), Parameter: new("d")}},
					{Metadata: &authz.Metadata{Key: new("e"), Path: []string{"f", "g"}}},
					{Credential: &authz.CredentialAction{Field: credential.NewPath("owner")}},
					{Method: &authz.MethodAction{}}, {Host: &authz.HostAction{}}, {Path: &authz.PathAction{}},
				}}}
			},
		},
		{
			name: "every key of actions",
			yaml: `{anonymous: allow, limits: [{actions: [{generic_key: {key: k, value: a}},
				{remote_address: {trusted_hops: 2, ipv4_mask: 24, ipv6_mask: 64}}, {remote_address: {key: net, ipv4_mask: 32}},
				{header_value_match: {key: k, header: c, value: c, pattern: "*c*", invert: true}},
				{metadata: {key: e, path: [f, g, h], default: i}}, {credential: {field: label.team, key: team, default: none}},
				{credential: {field: claim.org.id}}, {method: {key: m}}, {host: {key: h}}, {path: {key: p}}]}]}`,
			change: func(p *authz.Policy) {
				p.Limits = []authz.RateLimit{{Position: "f:2", Actions: []authz.Action{
					{GenericKey: &authz.GenericKey{Key: new("k"), Value: new("a")}},
					{RemoteAddress: &authz.RemoteAddress{TrustedHops: 2, IPv4Mask: 24, IPv6Mask: 64}},
					{RemoteAddress: &authz.RemoteAddress{Key: new("net"), IPv4Mask: 32}},
					{HeaderValueMatch: &authz.HeaderValueMatch{
						Key: new("k"), Value: new("c"), Header: new("c"), Pattern: new("*c*"), Invert: true,
					}},
					{Metadata: &authz.Metadata{Key: new("e"), Path: []string{"f", "g", "h"}, Default: "i"}},
					{Credential: &authz.CredentialAction{Key: new("team"), Field: credential.NewPath("label.team"), Default: "none"}},
					{Credential: &authz.CredentialAction{Field: credential.NewPath("claim.org.id")}},
					{Method: &authz.MethodAction{Key: new("m")}},
					{Host: &authz.HostAction{Key: new("h")}}, {Path: &authz.PathAction{Key: new("p")}},
				}}}
			},
		},
		{
			name: "costs",
			yaml: `{anonymous: allow, limits: [{actions: [{host: }], hits_addend: {number: 100}},
				{actions: [{host: }], hits_addend: {header: X-Cost, number: 2}},
				{actions: [{host: }], hits_addend: {extension: Cost}}]}`,
			change: func(p *authz.Policy) {
				host := []authz.Action{{Host: &authz.HostAction{}}}
				p.Limits = []authz.RateLimit{
					{Actions: host, Cost: authz.Cost{Number: 100}, Position: "f:2"},
					{Actions: host, Cost: authz.Cost{Number: 2, Header: new("X-Cost")}, Position: "f:3"},
					{Actions: host, Cost: authz.Cost{Extension: new("Cost")}, Position: "f:4"},
				}
			},
		},
		{
			name: "limits of refused requests",
			yaml: `{credentials: [{api_key: {header: a}}],
				refused: [{actions: [{remote_address: {key: k}}, {host: }], hits_addend: {number: 2}}]}`,
			change: func(p *authz.Policy) {
				p.Anonymous = authz.Deny
				p.Credentials = []authz.Credential{apiKey(credential.Source{Header: new("a")})}
				p.Refused = []authz.RateLimit{{
					Actions:  []authz.Action{{RemoteAddress: &authz.RemoteAddress{Key: new("k")}}, {Host: &authz.HostAction{}}},
					Cost:     authz.Cost{Number: 2},
					Position: "f:3",
				}}
			},
		},
		{
			name: "headers that are kept",
			yaml: `{anonymous: allow, keep_headers: [X-Forwarded-Host, forwarded, x-forwarded-host]}`,
			change: func(p *authz.Policy) {
				p.KeepHeaders = []string{"X-Forwarded-Host", "forwarded", "x-forwarded-host"}
			},
		},
		{
			name: "identity headers",
			yaml: `{anonymous: allow, headers: {owner: X-Owner, plan: off, method: "", key_id: }}`,
			change: func(p *authz.Policy) {
				p.Headers = &authz.IdentityHeaders{
					Owner: new(authz.OptionalHeader("X-Owner")),
					Plan:  new(authz.OptionalHeader("")), Method: new(authz.OptionalHeader("")),
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "domain: d\nauthz: " + c.yaml
			if !strings.HasPrefix(c.yaml, "{") {
				text = "domain: d\nauthz: {" + c.yaml + "}"
			}
			set, problems := Parse([]File{{Name: "f", Content: []byte(text)}}, Config{})
			if problems.HasErrors() {
				t.Fatal(problems)
			}
			want := authz.Policy{Anonymous: authz.Allow, Position: "f:2"}
			c.change(&want)
			for i := range want.Credentials {
				want.Credentials[i].Position = "f:2"
			}
			if diff := cmp.Diff(map[string]*authz.Policy{"d": &want}, set.Policies); diff != "" {
				t.Errorf("%s\nwant (-) and got (+):\n%s", text, diff)
			}
		})
	}
}

// Each limit is compared with all descriptors, so the number of limits is bounded.
func TestParseOfLargePoliciesIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: d\nauthz:\n  anonymous: allow\n  access:\n")
	for i := range 2_000 {
		fmt.Fprintf(&text, "  - {hosts: [a%d, b, c], path: {prefix: /a}}\n", i)
	}
	text.WriteString("  limits:\n")
	for range 2_000 {
		text.WriteString("  - actions: [{credential: {field: owner}}]\n")
	}
	text.WriteString("descriptors:\n")
	for i := range 2_000 {
		fmt.Fprintf(&text, "- {key: owner, value: v%d}\n", i)
	}
	_, problems := Parse([]File{{Name: "f", Content: []byte(text.String())}}, Config{})
	if !slices.ContainsFunc(problems, func(p strictyaml.Problem) bool { return p.Message == "more than 64 limits" }) {
		t.Errorf("got:\n%s\nwant an error for 2,000 limits", problems)
	}
}
