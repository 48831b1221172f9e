package authz

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

func TestUnsafePath(t *testing.T) {
	for path, want := range map[string]bool{
		"/":                false,
		"/a":               false,
		"/a/":              false,
		"/a/b.c/d-e_f~g":   false,
		"/a/..b":           false,
		"/a/b..":           false,
		"/a/...":           false,
		"/%61":             false,
		"/a%20b":           false,
		"/%C3%A4":          false,
		"/a:b@c!$&'()*+,=": false,
		"*":                false,
		"":                 true,
		"a":                true,
		"http://evil/a":    true,
		"//":               true,
		"//a":              true,
		"/a//b":            true,
		"/a//":             true,
		"/.":               true,
		"/..":              true,
		"/a/.":             true,
		"/a/..":            true,
		"/a/../b":          true,
		"/a/./b":           true,
		"/a/%2e%2e/b":      true,
		"/a/%2E%2E/b":      true,
		"/a/.%2e/b":        true,
		"/%2e/b":           true,
		"/a%2fb":           true,
		"/a%2Fb":           true,
		"/a%2f..%2fb":      true,
		"/a%5cb":           true,
		"/a%5Cb":           true,
		`/a\b`:             true,
		`/a\..\b`:          true,
		"/a;b":             true,
		"/a;b=c/d":         true,
		"/a/.;/b":          true,
		"/a/..;/b":         true,
		"/a%3bb":           true,
		"/a%00":            true,
		"/a\x00":           true,
		"/a%0a":            true,
		"/a\x7f":           true,
		"/a%":              true,
		"/a%2":             true,
		"/a%zz":            true,
		"/a%3fb":           true,
		"/a%23b":           true,

		// Bytes that are not UTF-8, among them longer forms of dots and slashes.
		"/a/%c0%ae%c0%ae/b":             true,
		"/a%c0%afb":                     true,
		"/a%c1%9cb":                     true,
		"/a%e0%80%afb":                  true,
		"/a%e0%80%aeb":                  true,
		"/a%f0%80%80%afb":               true,
		"/a%F8%80%80%80%AFb":            true,
		"/a\xc0\xafb":                   true,
		"/a%ed%a0%80":                   true, // half a surrogate pair
		"/a%f4%90%80%80":                true, // beyond U+10FFFF
		"/caf%e9":                       true, // ISO 8859-1
		"/a%c3":                         true,
		"/a%E2%82%AC%F0%9F%98%80\u00e4": false,

		// Encoded more than once.
		"/a%252eb":        true,
		"/a/%252e%252e/b": true,
		"/a/.%252E/b":     true,
		"/a%252fb":        true,
		"/a%255cb":        true,
		"/a%253bb":        true,
		"/a%2500":         true,
		"/%2561":          true,
		"/a%2520b":        true,
		"/a%25252fb":      true,
		"/a%25%32fb":      true,
		"/a%25%32%66b":    true,
		"/a%%32fb":        true, // not an encoding
		"/a%25c0%25afb":   true,
		"/100%25":         false,
		"/100%25/2f":      false,
		"/100%25%20off":   false,
		"/5%25-7%25":      false,
		"/100%25%25":      false,
		"/100%252":        false,

		// Encodings that only some readers know, such as IIS.
		"/a/%25u002e%25u002e/b": true,
		"/a%25u002Fb":           true,
		"/a%25U005cb":           true,
		"/%25u0061":             true,
		"/a%2525u002e":          true,
		"/a%25u00":              false,
		"/a%25u00xy":            false,
		"/50%25unique":          false,

		// Dots with spaces or invisible characters, which some readers remove.
		"/a/..%20/b":                true,
		"/a/%20../b":                true,
		"/a/.%20./b":                true,
		"/a/.%20":                   true,
		"/a/...%20/b":               true,
		"/a/%20/b":                  true,
		"/a/%C2%A0/b":               true,
		"/a/..%C2%A0/b":             true,
		"/a/.%C2%AD./b":             true, // U+00AD
		"/a/.\u200b./b":             true,
		"/a/..%EF%BB%BF":            true,
		"/a/.%EF%B8%8F./b":          true, // U+FE0F
		"/a/%E3%85%A4/b":            true, // U+3164
		"/a/.%20b/.c/d./e%20f":      false,
		"/a/..%20b":                 false,
		"/a/b%C2%ADc":               false,
		"/a/%F0%9F%8F%B3%EF%B8%8Fa": false,

		// White space or invisible characters at an end of a segment, which some readers trim.
		"/a%20":                    true,
		"/%20a":                    true,
		"/a%20/b":                  true,
		"/a/%20b":                  true,
		"/a/b%20%20":               true,
		"/a%C2%A0":                 true,
		"/a%E3%80%80/b":            true, // U+3000
		"/%C2%85a":                 true,
		"/a/b%E2%80%A8":            true, // U+2028
		"/a%E2%80%8B":              true, // U+200B
		"/%EF%BB%BFa/b":            true, // U+FEFF
		"/a%E2%80%8D/b":            true, // U+200D
		"/a%C2%AD":                 true, // U+00AD
		"/a%E2%A0%80":              true, // U+2800
		"/a\u00a0":                 true,
		"/a/%F0%9F%8F%B3%EF%B8%8F": true, // U+FE0F
		"/a%20b/c%20d":             false,

		// Characters that compatibility decomposition (NFKC) turns into dots, slashes and the like.
		"/a/%EF%BC%8E%EF%BC%8E/b":               true, // fullwidth full stops
		"/a/.\uff0e/b":                          true,
		"/a/%E2%80%A5/b":                        true, // U+2025, two dots
		"/a/%E2%80%A6/b":                        true, // U+2026, three dots
		"/a/\ufe52\ufe52/b":                     true,
		"/a%EF%BC%8Fb":                          true, // fullwidth slash
		"/a%EF%BC%BCb":                          true, // fullwidth backslash
		"/a%E2%84%80b":                          true, // U+2100, a/c
		"/a%EF%BC%9Bb":                          true, // fullwidth semicolon
		"/a%CD%BEb":                             true, // Greek question mark
		"/a%EF%BC%9Fb":                          true,
		"/a%EF%BC%83b":                          true,
		"/a%EF%BC%852e":                         true, // fullwidth percent sign
		"/a/%25%EF%BC%92%EF%BD%85":              true, // a percent sign and fullwidth digits
		"/a/%252%EF%BD%85/b":                    true,
		"/a/%25%EF%BD%95002e/b":                 true,
		"/a%EF%BC%A1":                           false, // fullwidth letter
		"/e%CC%81":                              false, // a letter and its accent
		"/%ED%95%9C%EA%B8%80/%EF%AC%81x/%C2%BD": false,

		"/a b": true, // ends the path in a request line
		"/a#b": true,
	} {
		if got := unsafePath(path); got != want {
			t.Errorf("unsafePath(%q) = %t, want %t", path, got, want)
		}
	}
}

func TestPathPattern(t *testing.T) {
	for _, c := range []struct {
		pattern *PathPattern
		path    string
		want    bool
	}{
		{nil, "/anything", true},
		{&PathPattern{Exact: new("/a")}, "/a", true},
		{&PathPattern{Exact: new("/a")}, "/a/", false},
		{&PathPattern{Exact: new("/a")}, "/A", false},
		{&PathPattern{Prefix: new("/a")}, "/a", true},
		{&PathPattern{Prefix: new("/a")}, "/a/b", true},
		{&PathPattern{Prefix: new("/a")}, "/ab", false},
		{&PathPattern{Prefix: new("/a/")}, "/a/b", true},
		{&PathPattern{Prefix: new("/a/")}, "/a", false},
		{&PathPattern{Prefix: new("/")}, "/x", true},
		{&PathPattern{Template: new("/v1/users/{id}")}, "/v1/users/7", true},
		{&PathPattern{Template: new("/v1/users/{id}")}, "/v1/users/", false},
		{&PathPattern{Template: new("/v1/users/{id}")}, "/v1/users", false},
		{&PathPattern{Template: new("/v1/users/{id}")}, "/v1/users/7/x", false},
		{&PathPattern{Template: new("/{a}/x/{b}")}, "/1/x/2", true},
		{&PathPattern{Template: new("/{a}/x/{b}")}, "/1/y/2", false},
		{&PathPattern{Template: new("/")}, "/", true},
	} {
		pattern := c.pattern.compile()
		if got := pattern.match(c.path); got != c.want {
			t.Errorf("%+v matches %q: %t, want %t", pattern, c.path, got, c.want)
		}
	}
}

// FuzzPath: every upstream reads an accepted path as this service does.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/", "/a/b", "/a/", "/100%25", "/%C3%A4", "/a/%2e%2e/b", "/a%2fb", "/a;b", "//", "/%", "/a/../b", "/a%252fb",
		"/%2561", "/a%25%32fb", "/a%c0%af", "/a\xc0\xaf", "/a%5cb", "/a%00b", "/a b", "/a#/../b", "/a?b/../c", "*",
		"", "/a/%25u002e%25u002e/b", "/a/..%20/b", "/a/.%C2%AD./b", "/a/%EF%BC%8E%EF%BC%8E/b", "/a%EF%BC%8Fb",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, received string) {
		path, _, _ := strings.Cut(received, "?")
		if unsafePath(path) || path == "*" {
			return
		}
		plain := plainPath(path)
		want := plain
		if plain != "/" {
			want = strings.TrimSuffix(plain, "/")
		}
		for does, read := range testenv.PathReaders() {
			if got := read(path); got != want {
				t.Errorf("one that %s reads %q as %q, and this service as %q", does, received, got, plain)
			}
		}
		root := (&PathPattern{Prefix: new("/")}).compile()
		if !root.match(plain) {
			t.Errorf("%q, read as %q, is not below /", received, plain)
		}
		for _, template := range []string{"/{a}", "/{a}/{b}", "/a/{b}"} {
			matchTemplate(template, plain)
		}
	})
}
