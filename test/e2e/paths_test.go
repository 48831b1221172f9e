package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// pathRules open one directory and deny another.
const pathRules = `
domain: sample
authz:
  anonymous: allow
  access:
    - { path: { prefix: /admin }, require: denied }
    - { path: { prefix: /public }, require: open }
`

// TestPaths sends variants of a denied path, through an Envoy that normalizes paths and through one that does not.
func TestPaths(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, pathRules)
	service := startService(t, "RUNTIME_ROOT="+root)
	for _, c := range []struct {
		name  string
		edits []edit
	}{
		{"the sample configuration", nil},
		{"without normalization", []edit{
			instead("normalize_path: true", "normalize_path: false"),
			instead("merge_slashes: true", "merge_slashes: false"),
			instead("_slashes_action: UNESCAPE_AND_REDIRECT", "_slashes_action: KEEP_UNCHANGED"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			envoy := startRawEnvoy(t, service.grpcPort, c.edits...)
			for path, want := range pathStatuses {
				testPath(t, envoy, path, want)
			}
		})
	}
}

// pathStatuses has paths and the status of a request for each, if Envoy does not change the path.
var pathStatuses = map[string]int{
	"/":                          http.StatusOK,
	"/public/a.b/c-d_e~f":        http.StatusOK,
	"/public/100%25":             http.StatusOK,
	"/public/100%25%20off":       http.StatusOK,
	"/public/5%25-7%25/x":        http.StatusOK,
	"/public/%C3%A4%E2%82%AC":    http.StatusOK,
	"/public/%F0%9F%98%80":       http.StatusOK,
	"/public?q=%252e%252e%c0%ae": http.StatusOK,
	"/public?q=\xff":             http.StatusOK,
	"/admin":                     http.StatusForbidden,
	"/%61dmin/x":                 http.StatusForbidden,

	// Encoded twice or more often.
	"/public/%252e%252e/admin":             http.StatusBadRequest,
	"/public/%252E%252E/admin":             http.StatusBadRequest,
	"/public/.%252e/admin":                 http.StatusBadRequest,
	"/public/..%252fadmin":                 http.StatusBadRequest,
	"/public%252f..%252fadmin":             http.StatusBadRequest,
	"/public/..%255cadmin":                 http.StatusBadRequest,
	"/public/%25252e%25252e/admin":         http.StatusBadRequest,
	"/public/%25%32%65%25%32%65/admin":     http.StatusBadRequest,
	"/public/%%32%65%%32%65/admin":         http.StatusBadRequest,
	"/public/%2%65%2%65/admin":             http.StatusBadRequest,
	"/%2561dmin":                           http.StatusBadRequest,
	"/admin%253bx":                         http.StatusBadRequest,
	"/admin%2500":                          http.StatusBadRequest,
	"/public/%25252525252525252e%2e/admin": http.StatusBadRequest,

	// Encodings that only some readers decode, characters that some readers remove, and compatibility forms of characters.
	"/public/%25u002e%25u002e/admin":           http.StatusBadRequest,
	"/public/..%25u002fadmin":                  http.StatusBadRequest,
	"/public/..%20/admin":                      http.StatusBadRequest,
	"/public/.%20./admin":                      http.StatusBadRequest,
	"/public/.%C2%AD./admin":                   http.StatusBadRequest,
	"/public/..%C2%A0/admin":                   http.StatusBadRequest,
	"/public/%EF%BC%8E%EF%BC%8E/admin":         http.StatusBadRequest,
	"/public/..%EF%BC%8Fadmin":                 http.StatusBadRequest,
	"/public/%E2%80%A5/admin":                  http.StatusBadRequest,
	"/public/%EF%BC%852e%EF%BC%852e/admin":     http.StatusBadRequest,
	"/public/%25%EF%BC%92%EF%BD%85%252e/admin": http.StatusBadRequest,
	"/public/\xef\xbc\x8e\xef\xbc\x8e/admin":   http.StatusBadRequest,

	// White space and invisible characters at an end of a segment, which some readers trim.
	"/admin%20":             http.StatusBadRequest,
	"/%20admin":             http.StatusBadRequest,
	"/admin%20/x":           http.StatusBadRequest,
	"/public/%20/x":         http.StatusBadRequest,
	"/admin%C2%A0":          http.StatusBadRequest,
	"/%E2%80%8Badmin/x":     http.StatusBadRequest,
	"/admin%EF%BB%BF":       http.StatusBadRequest,
	"/public/a%20b/c":       http.StatusOK,
	"/public/x%E2%80%8By/z": http.StatusOK,

	// Overlong and invalid UTF-8.
	"/public/%c0%ae%c0%ae/admin":             http.StatusBadRequest,
	"/public/%C0%AE%C0%AE/admin":             http.StatusBadRequest,
	"/public/%e0%80%ae%e0%80%ae/admin":       http.StatusBadRequest,
	"/public/..%c0%afadmin":                  http.StatusBadRequest,
	"/public/..%e0%80%afadmin":               http.StatusBadRequest,
	"/public/..%f0%80%80%afadmin":            http.StatusBadRequest,
	"/public/..%f8%80%80%80%afadmin":         http.StatusBadRequest,
	"/public/..%fc%80%80%80%80%afadmin":      http.StatusBadRequest,
	"/public/..%c1%9cadmin":                  http.StatusBadRequest,
	"/public/..%25c0%25afadmin":              http.StatusBadRequest,
	"/public/%ed%a0%80":                      http.StatusBadRequest,
	"/public/%f4%90%80%80":                   http.StatusBadRequest,
	"/public/%e9t%e9":                        http.StatusBadRequest,
	"/public/%c2":                            http.StatusBadRequest,
	"/public/%c2%2f..%2fadmin":               http.StatusBadRequest,
	"/public/%c2/..%c2/admin":                http.StatusBadRequest,
	"/public/\xc0\xae\xc0\xae/admin":         http.StatusBadRequest,
	"/public/..\xc0\xafadmin":                http.StatusBadRequest,
	"/admin HTTP/1.1":                        http.StatusBadRequest, // a space ends the path of a request line
	"/public#/../admin":                      http.StatusBadRequest,
	"/public/\tx":                            http.StatusBadRequest,
	"/public/\xff":                           http.StatusBadRequest,
	"/public/\xe0\x80\xae\xe0\x80\xae/admin": http.StatusBadRequest,
}

func testPath(t *testing.T, envoy *proxy, sent string, want int) {
	t.Helper()
	for protocol, a := range map[string]rawAnswer{
		"HTTP/1.1": envoy.sendHTTP1(t, "GET "+sent+" HTTP/1.1", "host: example.com"),
		"HTTP/2":   envoy.sendHTTP2(t, ":path", sent, ":authority", "example.com"),
	} {
		for does, read := range testenv.PathReaders() {
			if got := read(a.path()); got == "/admin" || strings.HasPrefix(got, "/admin/") {
				t.Errorf("%s, %q: the application received %q; a reader that %s reads it as %s",
					protocol, sent, a.path(), does, got)
			}
		}
		switch a.status {
		case want:
		case 0, http.StatusBadRequest: // of Envoy, for bytes that are invalid in a path of HTTP/1.1
			if strings.Trim(sent, printable) == "" {
				t.Errorf("%s, %q: got %d, want %d", protocol, sent, a.status, want)
			}
		case http.StatusForbidden, http.StatusTemporaryRedirect: // Envoy has decoded the path first
		default:
			t.Errorf("%s, %q: got %d, want %d; the application received %q", protocol, sent, a.status, want, a.head)
		}
	}
}

const printable = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/%?=.-_~"

// path returns the path that the application received, without its query.
func (a rawAnswer) path() string {
	line, _, _ := strings.Cut(a.head, "\r\n")
	target, _, _ := strings.Cut(strings.TrimPrefix(line, "GET "), " ")
	received, _, _ := strings.Cut(target, "?")
	return received
}
