package flow

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
)

// TestHTTPRequest sends request lines unchanged, which a Go client would clean up.
func TestHTTPRequest(t *testing.T) {
	const other, refusedByGo = "another handler", "400"
	for _, c := range []struct {
		line, header, want string
	}{
		{"GET /check/v1/items?x=1 HTTP/1.1", "", "GET /v1/items?x=1 of example.org"},
		{"DELETE /check/ HTTP/1.1", "", "DELETE / of example.org"},
		{"GET /check//admin/../x%2fy;z?a;b HTTP/1.1", "", "GET //admin/../x%2fy;z?a;b of example.org"},
		{"GET /check/check/x HTTP/1.1", "", "GET /check/x of example.org"},
		{"OPTIONS /check* HTTP/1.1", "", "OPTIONS * of example.org"},
		{"GET /checkout HTTP/1.1", "", other},
		{"GET /check HTTP/1.1", "", other},
		{"GET /check?x HTTP/1.1", "", other},
		{"GET /json HTTP/1.1", "", other},
		{"GET /check/%zz HTTP/1.1", "", refusedByGo},
		{"GET /check/ HTTP/1.1", "X-Envoy-Source: 192.0.2.1", "GET / of example.org from 192.0.2.1"},
		{"GET /check/ HTTP/1.1", "X-Envoy-Source: 192.0.2.1\r\nx-envoy-source: 192.0.2.2", "GET / of example.org"},
		{"GET /check/ HTTP/1.1", "X-Envoy-Source: -", "GET / of example.org"},
		{"GET /check/ HTTP/1.1", "X-Forwarded-For: 192.0.2.1\r\nX-Principal: admin", "GET / of example.org"},
	} {
		t.Run(c.line, func(t *testing.T) {
			got := other
			server := newCheckFlow(t, Config{
				Authorizer: authorizer(func(_ context.Context, r *authz.Request) authz.Decision {
					got = fmt.Sprintf("%s %s of %s", r.Method, r.Path, r.Host)
					if r.Source != "" {
						got += " from " + r.Source
					}
					if r.Principal != "" || len(r.Extensions) > 0 {
						t.Errorf("principal %q, extensions %v", r.Principal, r.Extensions)
					}
					return authz.Decision{}
				}),
				HTTP: HTTPConfig{Headers: auth.HTTPHeaders{Source: "x-envoy-source"}},
			})
			s := httptest.NewServer(server.Checks(http.NotFoundHandler()))
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			header := c.header
			if header != "" {
				header += "\r\n"
			}
			if _, err := fmt.Fprintf(conn, "%s\r\nHost: example.org\r\n%s\r\n", c.line, header); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusBadRequest {
				got = refusedByGo
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", c.line, diff)
			}
			if resp.StatusCode == http.StatusOK {
				t.Errorf("got %s, want a refusal", resp.Status)
			}
		})
	}
}

// TestHTTPInformsOperator checks that the first request, and only the first, logs what the service cannot see of
// Envoy's configuration.
func TestHTTPInformsOperator(t *testing.T) {
	var lines bytes.Buffer
	server := newCheckFlow(t, Config{
		Authorizer: authorizer(func(context.Context, *authz.Request) authz.Decision { return authz.Decision{} }),
		HTTP:       HTTPConfig{Log: slog.New(slog.NewTextHandler(&lines, nil))},
	})
	handler := server.Checks(http.NotFoundHandler())
	for _, path := range []string{"/json", "/check/", "/check/"} {
		if path == "/check/" && lines.Len() > 0 {
			lines.WriteString("and then\n")
		}
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody))
	}
	got := lines.String()
	if strings.Count(got, "allowed_upstream_headers") != 1 || !strings.HasSuffix(got, "and then\n") {
		t.Errorf("the log is\n%s\nwant one line about allowed_upstream_headers, with the first request below /check", got)
	}
}

// TestHTTPWithoutAddresses checks that the log warns once if decisions depend on an address that Envoy does not send.
// The policy that needs it may be loaded later.
func TestHTTPWithoutAddresses(t *testing.T) {
	for _, c := range []struct {
		name, sourceHeader string
		needed             bool
		warnings           int
	}{
		{"needed, and unknown", "", true, 1},
		{"needed, and known", "x-envoy-source", true, 0},
		{"not needed", "", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines bytes.Buffer
			needed := false
			server := newCheckFlow(t, Config{
				Authorizer: authorizer(func(context.Context, *authz.Request) authz.Decision { return authz.Decision{} }),
				HTTP: HTTPConfig{
					Headers: auth.HTTPHeaders{Source: c.sourceHeader}, NeedsAddress: func() bool { return needed },
					Log: slog.New(slog.NewTextHandler(&lines, nil)),
				},
			})
			handler := server.Checks(http.NotFoundHandler())
			for range 3 {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/check/", http.NoBody))
				needed = c.needed
			}
			if n := strings.Count(lines.String(), "level=WARN"); n != c.warnings {
				t.Errorf("%d warnings, want %d:\n%s", n, c.warnings, &lines)
			}
		})
	}
}
