package authz_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // x5t is defined by it
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/tokens"
)

// TestIssuers runs testdata/issuers: products with what they publish, a policy that has only `issuer`, and tokens. The
// policy is that of docs/identity-providers.md with the same issuer, unless the archive has rules.yaml. Another *.yaml
// is one more policy for the same tokens; its name begins its lines in want.
// Each file with a URL as its name is served there. {{n}}, {{x5c}} and {{x5t}} are those of the key of the test.
func TestIssuers(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	thumbprint := sha1.Sum(der) //nolint:gosec // as above
	fill := strings.NewReplacer("{{n}}", base64.RawURLEncoding.EncodeToString(private.N.Bytes()),
		"{{x5c}}", base64.StdEncoding.EncodeToString(der), "{{x5t}}", base64.RawURLEncoding.EncodeToString(thumbprint[:]))
	archives, err := filepath.Glob("testdata/issuers/*.txtar")
	if err != nil || len(archives) != 4 {
		t.Fatalf("the issuers are %q (%v), want 4", archives, err)
	}
	for _, path := range archives {
		t.Run(filepath.Base(path), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			published, want := map[string]string{}, ""
			var rules file.File
			var more []file.File
			var got strings.Builder
			for _, f := range archive.Files {
				switch {
				case strings.HasPrefix(f.Name, "https://"):
					published[f.Name] = fill.Replace(string(f.Data))
					if issuer, ok := strings.CutSuffix(f.Name, "/.well-known/openid-configuration"); ok && rules.Content == nil {
						rules = file.File{Name: "rules.yaml", Content: []byte(documentedPolicy(t, issuer))}
					}
				case f.Name == "rules.yaml":
					rules = file.File{Name: f.Name, Content: f.Data}
				case strings.HasSuffix(f.Name, ".yaml"):
					more = append(more, file.File{Name: f.Name, Content: f.Data})
				case f.Name == "want":
					want = string(f.Data)
				}
			}
			var signedTokens [][2]string // their names and texts
			for _, f := range archive.Files {
				var token struct{ Header, Claims map[string]any }
				if !strings.HasPrefix(string(f.Data), "{") || published[f.Name] != "" {
					continue
				}
				if err := json.Unmarshal([]byte(fill.Replace(string(f.Data))), &token); err != nil {
					t.Fatal(f.Name, err)
				}
				kid, _ := token.Header["kid"].(string)
				delete(token.Header, "kid")
				claims, err := json.Marshal(token.Claims)
				if err != nil {
					t.Fatal(err)
				}
				signed := tokens.Key{ID: kid, Algorithm: jose.RS256, Private: private}.Text(t, token.Header, claims)
				signedTokens = append(signedTokens, [2]string{f.Name, signed})
			}
			for i, policy := range append([]file.File{rules}, more...) {
				identify, prefix := openIssuers(t, policy, published), ""
				if i > 0 {
					prefix = policy.Name + ", "
				}
				for _, token := range signedTokens {
					fmt.Fprintf(&got, "%s%s: %s\n", prefix, token[0], identify(token[1]))
				}
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// documentedPolicy returns the rule file of docs/identity-providers.md with an issuer. A block of the page that has
// only a part of `authz` stands for the first rule file with this part.
func documentedPolicy(t *testing.T, issuer string) string {
	t.Helper()
	first := ""
	for _, after := range strings.Split(testenv.RepoFile(t, "docs/identity-providers.md"), "\n```yaml\n")[1:] {
		text, _, _ := strings.Cut(after, "```")
		if first == "" {
			first = text
		} else {
			rules, _, _ := strings.Cut(first, "authz:\n")
			_, refused, _ := strings.Cut(first, "  refused:\n")
			text = rules + text + "  refused:\n" + refused
		}
		if strings.Contains(text, " issuer: "+issuer) {
			return text
		}
	}
	t.Fatalf("docs/identity-providers.md has no rule file with the issuer %s", issuer)
	return ""
}

// openIssuers serves what issuers publish, by URL, over TLS under their own names. It returns a function that decides a
// request with a token by a policy.
func openIssuers(t *testing.T, content file.File, published map[string]string) (identify func(token string) string) {
	t.Helper()
	authority := testenv.NewAuthority(t)
	var hosts []string
	for text := range published {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, u.Host)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, ok := published["https://"+r.Host+r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(document))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue(t, hosts[0], time.Hour, hosts...)}}
	server.StartTLS()
	t.Cleanup(server.Close)
	rules, problems := file.Parse([]file.File{content}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	active := ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{})
	policies := authz.NewPolicies(rules.Policies, active, reply.Headers{})
	store, err := memstore.New(memstore.Config{Clock: now.UnixMicro})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	v := jwt.New(jwt.Config{
		Now: func() time.Time { return now.Add(time.Minute) },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: authority.Pool},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
			},
		},
		OnReading: func(r jwt.Reading) {
			if r.Err != nil {
				t.Errorf("%s: %v", r.Source, r.Err)
			}
		},
	})
	t.Cleanup(v.Close)
	v.SetIssuers(authz.CredentialsOf[*jwt.Credential](policies))
	a := decider{authz.New(authz.Config{
		Policies: func() *authz.Policies { return policies }, Checkers: map[string]credential.Checker{jwt.Name: v},
	}), ratelimit.New(ratelimit.Config{Store: store, Fallback: store})}
	return func(token string) string {
		d := a.decide(t.Context(), parseRequest(t, "GET / authorization:Bearer~"+token))
		if d.Verdict != authz.Allowed {
			return fmt.Sprintf("%s (%s)", d.Reason, d.Cause)
		}
		id := d.Identity
		text := fmt.Sprintf("owner %s, plan %s, scopes %q", id.Owner, id.Plan, id.Scopes)
		if d.Absent != nil {
			text += fmt.Sprintf(", absent %v", d.Absent)
		}
		if d.Limits != nil {
			for i := range d.Limits.Limits {
				text += ", limit " + d.Limits.Limits[i].Limit.Name
			}
		}
		return text
	}
}
