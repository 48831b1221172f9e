package authz

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
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

		"/a b":  true, // ends the path in a request line
		"/a#b":  true,
		"/a%20": false,
	} {
		if got := UnsafePath(path); got != want {
			t.Errorf("UnsafePath(%q) = %t, want %t", path, got, want)
		}
	}
}

func TestPathPattern(t *testing.T) {
	for _, c := range []struct {
		pattern PathPattern
		path    string
		want    bool
	}{
		{PathPattern{}, "/anything", true},
		{PathPattern{Exact: "/a"}, "/a", true},
		{PathPattern{Exact: "/a"}, "/a/", false},
		{PathPattern{Exact: "/a"}, "/A", false},
		{PathPattern{Prefix: "/a"}, "/a", true},
		{PathPattern{Prefix: "/a"}, "/a/b", true},
		{PathPattern{Prefix: "/a"}, "/ab", false},
		{PathPattern{Prefix: "/a/"}, "/a/b", true},
		{PathPattern{Prefix: "/a/"}, "/a", false},
		{PathPattern{Prefix: "/"}, "/x", true},
		{PathPattern{Template: "/v1/users/{id}"}, "/v1/users/7", true},
		{PathPattern{Template: "/v1/users/{id}"}, "/v1/users/", false},
		{PathPattern{Template: "/v1/users/{id}"}, "/v1/users", false},
		{PathPattern{Template: "/v1/users/{id}"}, "/v1/users/7/x", false},
		{PathPattern{Template: "/{a}/x/{b}"}, "/1/x/2", true},
		{PathPattern{Template: "/{a}/x/{b}"}, "/1/y/2", false},
		{PathPattern{Template: "/"}, "/", true},
	} {
		if got := c.pattern.match(c.path); got != c.want {
			t.Errorf("%+v matches %q: %t, want %t", c.pattern, c.path, got, c.want)
		}
	}
}

// FuzzPath: every upstream finds the place of an accepted path where this service looks for it.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/", "/a/b", "/a/", "/100%25", "/%C3%A4", "/a/%2e%2e/b", "/a%2fb", "/a;b", "//", "/%", "/a/../b", "/a%252fb",
		"/%2561", "/a%25%32fb", "/a%c0%af", "/a\xc0\xaf", "/a%5cb", "/a%00b", "/a b", "/a#/../b", "/a?b/../c", "*",
		"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, received string) {
		path, _ := splitPath(received)
		if UnsafePath(path) || path == "*" {
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
		if !(PathPattern{Prefix: "/"}).match(plain) {
			t.Errorf("%q, read as %q, is not below /", received, plain)
		}
		for _, template := range []string{"/{a}", "/{a}/{b}", "/a/{b}"} {
			matchTemplate(template, plain)
		}
	})
}
