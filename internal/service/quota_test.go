package service

import (
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const quotaOfCertificates = `
domain: shop
descriptors: [{key: owner, rate_limit: {unit: hour, requests_per_unit: 5}}]
authz:
  credentials: [{mtls: {principals: ["*"]}}]
  quota_path: /quota
  limits: [{actions: [{credential: {field: owner}}]}]
`

// TestQuotaOverHTTP asks /quota of the HTTP port. What the client sends proves no identity there, also in the header in
// which Envoy sends /check that of the client.
func TestQuotaOverHTTP(t *testing.T) {
	t.Parallel()
	with := func(rules string) (address string) {
		root := testenv.RulesRootWith(t, rules)
		_, address, _, _ = start(t, configured(func(s *settings.Settings) {
			s.Rules.Root, s.Authorization.PrincipalHeader = root, "x-peer-principal"
		}))
		return address
	}
	certificates := with(quotaOfCertificates)
	without := with("domain: shop\nauthz: {anonymous: allow}\ndescriptors: [{key: user}]\n")
	none := with("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]\n")
	for _, c := range []struct {
		address, request, header string
		status                   int
	}{
		{certificates, "GET /check/quota", "x-peer-principal", 200}, // a permission, which costs a request
		{certificates, "GET /quota", "x-peer-principal", 401},
		{certificates, "GET /quota", "x-forwarded-client-cert", 401},
		{certificates, "HEAD /quota", "x-peer-principal", 401},
		{certificates, "GET /quota", "", 401},
		{certificates, "POST /quota", "x-peer-principal", 405},
		{certificates, "GET /quota/", "x-peer-principal", 404},
		{without, "GET /quota", "", 404},
		{without, "GET /check/quota", "", 200},
		{none, "GET /quota", "", 404},
		{none, "GET /check/quota", "", 403},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header != "" {
			r.Header.Set(c.header, "ann")
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != c.status {
			t.Errorf("%s with %q: got %d, want %d", c.request, c.header, response.StatusCode, c.status)
		}
	}
}
