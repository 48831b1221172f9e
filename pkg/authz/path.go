package authz

import (
	"net/url"
	"strings"
)

// splitPath cuts the query and a fragment off a path as it was received.
func splitPath(received string) (path, query string) {
	received, _, _ = strings.Cut(received, "#")
	path, query, _ = strings.Cut(received, "?")
	return path, query
}

// UnsafePath reports whether the upstream may read a path, given without its query, otherwise than this service: dot segments,
// empty segments, encoded slashes and question marks, backslashes, path parameters (`;`), control characters, encodings that are
// none, bytes that only overlong UTF-8 has. Rules of
// access mean nothing for such a path (CVE-2019-9901, CVE-2021-29492 and their like).
func UnsafePath(path string) bool {
	if path == "*" { // OPTIONS *
		return false
	}
	decoded, err := url.PathUnescape(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return true
	}
	if strings.Count(decoded, "/") != strings.Count(path, "/") || strings.ContainsAny(decoded, `\;?#`) ||
		strings.IndexByte(decoded, 0xc0) >= 0 || strings.IndexByte(decoded, 0xc1) >= 0 {
		return true
	}
	for _, c := range []byte(decoded) {
		if c < ' ' || c == 0x7f {
			return true
		}
	}
	segments := strings.Split(decoded[1:], "/")
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-1 {
			return true
		}
	}
	return false
}

// plainPath is the path that rules of access are matched with: percent-encodings are what they stand for, as upstreams read
// them. One that can not be decoded stays as it is.
func plainPath(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	if decoded, err := url.PathUnescape(path); err == nil {
		return decoded
	}
	return path
}

// match reports whether the path fits the pattern. A prefix ends at a slash: /admin takes /admin and /admin/users, not
// /administration.
func (p PathPattern) match(path string) bool {
	switch {
	case p.Exact != "":
		return path == p.Exact
	case p.Prefix != "":
		rest, ok := strings.CutPrefix(path, p.Prefix)
		return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(p.Prefix, "/"))
	case p.Template != "":
		return matchTemplate(p.Template, path)
	}
	return true
}

// matchTemplate compares segment by segment; {name} takes any one that is not empty.
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

// text is what a descriptor says of the path: the pattern, of which there are few, and not what the client wrote.
func (p PathPattern) text() string {
	switch {
	case p.Exact != "":
		return p.Exact
	case p.Prefix != "":
		return strings.TrimSuffix(p.Prefix, "/") + "/*"
	case p.Template != "":
		return p.Template
	}
	return "*"
}
