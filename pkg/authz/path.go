package authz

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// path returns the path and the query of a request as the upstream receives them. ok is false for an ambiguous path:
// Envoy replaces bytes that are not UTF-8 by `!` in its path field, but sends the original ones, as in `:path`.
func (r *Request) path() (path, query string, ok bool) {
	named, _, _ := strings.Cut(r.Path, "?")
	received, ok := r.Headers.Get(":path")
	if !ok {
		received = r.Path
	}
	path, query, _ = strings.Cut(received, "?")
	return path, query, path == named
}

// unsafePath reports whether the upstream may read a path, given without its query, differently from this service.
// Access rules cannot protect such a path (for example CVE-2019-9901 and CVE-2021-29492). Unsafe are dot segments,
// empty segments, encoded slashes and question marks, backslashes, path parameters (`;`), fragments, spaces and control
// characters. So are bytes that are not UTF-8, such as overlong forms of `.` and `/`, and otherForms. Encodings
// must be valid and single: %252e is a dot to an upstream that decodes twice.
func unsafePath(path string) bool {
	if path == "*" || simplePath(path) { // * is the path of OPTIONS for a whole server
		return false
	}
	decoded, err := url.PathUnescape(path)
	if err != nil || !strings.HasPrefix(path, "/") || strings.Contains(path, " ") {
		return true
	}
	isControl := func(c rune) bool { return c < ' ' || c == 0x7f }
	return strings.Count(decoded, "/") != strings.Count(path, "/") || strings.Contains(decoded, "//") ||
		strings.ContainsAny(decoded, `\;?#`) || !utf8.ValidString(decoded) || strings.ContainsFunc(decoded, isControl) ||
		hasEncoding(decoded) || otherForms(decoded) || slices.ContainsFunc(strings.Split(decoded, "/"), unsafeSegment)
}

// simplePath reports whether a path has only characters that every program reads as they are, and no segment that is
// empty or begins with a dot. Such a path is safe without any further look.
func simplePath(path string) bool {
	for i := range len(path) {
		begins := i > 0 && path[i-1] == '/'
		if c := path[i]; !inSimplePath[c] || begins && (c == '/' || c == '.') {
			return false
		}
	}
	return path != "" && path[0] == '/'
}

var inSimplePath = charactersOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~!$&'()*+,=:@")

// otherForms reports whether a path has other forms (NFKC) of what structures it, such as the fullwidth slash.
func otherForms(path string) bool {
	if norm.NFKC.IsNormalString(path) {
		return false
	}
	normal := norm.NFKC.String(path)
	for _, c := range []string{".", "/", `\`, "%", ";", "?", "#"} {
		if strings.Count(normal, c) > strings.Count(path, c) {
			return true
		}
	}
	return hasEncoding(normal) // a percent sign and fullwidth digits
}

// unsafeSegment reports whether a segment is a dot segment, or one that an upstream may read as another. Some upstreams
// remove white space and invisible characters, everywhere or at the ends.
func unsafeSegment(segment string) bool {
	seen := strings.Map(func(c rune) rune {
		if credential.Trimmed(c) {
			return -1
		}
		return c
	}, segment)
	return seen == "." || seen == ".." || seen != segment && strings.Trim(seen, ".") == "" ||
		strings.TrimFunc(segment, credential.Trimmed) != segment
}

// encoding is an encoding such as %2e, or such as %u002e, which IIS and others decode.
var encoding = regexp.MustCompile(`%([0-9A-Fa-f]{2}|[uU][0-9A-Fa-f]{4})`)

func hasEncoding(path string) bool { return strings.Contains(path, "%") && encoding.MatchString(path) }

// plainPath returns the decoded path, for access rules. A path that cannot be decoded stays as it is.
func plainPath(path string) string {
	if decoded, err := url.PathUnescape(path); err == nil {
		return decoded
	}
	return path
}

// pathPattern is a compiled PathPattern.
type pathPattern struct {
	key, pattern string // PathPattern.Form
	// text is the path in a descriptor: the pattern, not the path of the client, so that there are few values.
	text string
}

func (p *PathPattern) compile() pathPattern {
	key, pattern := p.Form()
	text := pattern
	switch key {
	case "":
		text = "*"
	case "prefix":
		text = strings.TrimSuffix(pattern, "/") + "/*"
	}
	return pathPattern{key, pattern, text}
}

// match reports whether the pattern matches. The prefix /admin matches /admin and /admin/users, not /administration.
func (p *pathPattern) match(path string) bool {
	switch p.key {
	case "exact":
		return path == p.pattern
	case "prefix":
		rest, ok := strings.CutPrefix(path, p.pattern)
		return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(p.pattern, "/"))
	case "template":
		return matchTemplate(p.pattern, path)
	}
	return true
}

// matchTemplate compares segment by segment; {name} matches any segment that is not empty.
func matchTemplate(template, path string) bool {
	for {
		t, templateRest, moreTemplate := strings.Cut(template, "/")
		s, pathRest, morePath := strings.Cut(path, "/")
		variable := strings.HasPrefix(t, "{") && strings.HasSuffix(t, "}")
		if variable && s == "" || !variable && s != t || moreTemplate != morePath {
			return false
		}
		if !moreTemplate {
			return true
		}
		template, path = templateRest, pathRest
	}
}
