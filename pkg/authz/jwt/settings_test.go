package jwt_test

import (
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
)

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*authz.JWT)
		want   string // within the error; "" for none
	}{
		{"good ones", func(*authz.JWT) {}, ""},
		{"the most leeway", func(s *authz.JWT) { s.Leeway = time.Minute }, ""},
		{"a file", func(s *authz.JWT) { s.JWKSFile, s.JWKSURL = "keys.json", "" }, ""},
		{"no issuer", func(s *authz.JWT) { s.Issuer = "" }, "no issuer"},
		{"no audiences", func(s *authz.JWT) { s.Audiences = nil }, "no audiences"},
		{"an empty audience", func(s *authz.JWT) { s.Audiences = []string{""} }, "an audience is empty"},
		{"no algorithms", func(s *authz.JWT) { s.Algorithms = nil }, "no algorithms"},
		{"none", func(s *authz.JWT) { s.Algorithms = []string{"RS256", "none"} }, `algorithm "none"`},
		{"HMAC", func(s *authz.JWT) { s.Algorithms = []string{"HS256"} }, `algorithm "HS256"`},
		{"an algorithm of JWE", func(s *authz.JWT) { s.Algorithms = []string{"RSA-OAEP"} }, `algorithm "RSA-OAEP"`},
		{"too much leeway", func(s *authz.JWT) { s.Leeway = 61 * time.Second }, "leeway 1m1s"},
		{"negative leeway", func(s *authz.JWT) { s.Leeway = -1 }, "leeway -1ns"},
		{"neither file nor URL", func(s *authz.JWT) { s.JWKSURL = "" }, "either a file or a URL"},
		{"file and URL", func(s *authz.JWT) { s.JWKSFile = "keys.json" }, "either a file or a URL"},
		{"http", func(s *authz.JWT) { s.JWKSURL = "http://issuer.example/keys" }, "want https"},
		{"http to this machine, v4", func(s *authz.JWT) { s.JWKSURL = "http://127.0.0.2:80/keys" }, ""},
		{"http to this machine, v6", func(s *authz.JWT) { s.JWKSURL = "http://[::1]:80/keys" }, ""},
		{"http to what looks like this machine", func(s *authz.JWT) { s.JWKSURL = "http://127.0.0.1.evil.example/" }, "want https"},
		{"http to what was this machine", func(s *authz.JWT) { s.JWKSURL = "http://localhost@evil.example/" }, "user or password"},
		{"file URL", func(s *authz.JWT) { s.JWKSURL = "file:///etc/passwd" }, "want https"},
		{"no host", func(s *authz.JWT) { s.JWKSURL = "https:///keys" }, "want https"},
		{"no URL", func(s *authz.JWT) { s.JWKSURL = "https://%zz" }, "can not be read"},
		{"password", func(s *authz.JWT) { s.JWKSURL = "https://u:canary@issuer.example/" }, "user or password"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := settingsFor("https://issuer.example/keys")
			tc.change(s)
			err := jwt.Validate(s)
			if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary")) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestSettingsThatCanNotBeUsed refuse every token; those beside them work.
func TestSettingsThatCanNotBeUsed(t *testing.T) {
	s, c := es256("1"), &clock{}
	i := newIssuer(t, s)
	good, bad := i.settings(), i.settings()
	bad.Algorithms, bad.Audiences = []string{"ES256", "none"}, nil
	v := jwt.New(jwt.Config{Now: c.now})
	defer v.Close()
	err := v.SetSettings([]*authz.JWT{bad, good})
	for _, want := range []string{bad.Issuer, "no audiences", `"none"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	check(t, v, bad, s.sign(t, nil), "invalid: settings")
	check(t, v, good, s.sign(t, nil), "owner ann")
}
