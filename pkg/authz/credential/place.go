package credential

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Place is where a request carries a credential: a kind of place, and the name there. The zero value is nowhere.
type Place struct {
	In   PlaceKind
	Name string // of a header in lower case
}

// PlaceKind is a kind of place.
type PlaceKind uint8

// The kinds of places. Scheme is one of the Authorization header. Certificate is the principal that Envoy has verified.
const (
	Nowhere PlaceKind = iota
	Header
	Scheme
	Query
	Cookie
	Certificate
)

// Header returns the name of the header that holds the credential; "" for none.
func (p Place) Header() string {
	switch p.In {
	case Header:
		return p.Name
	case Scheme:
		return "authorization"
	case Cookie:
		return "cookie"
	}
	return ""
}

// String returns the place as a rule file names it, with a space in place of the colon.
func (p Place) String() string {
	kinds := [...]string{Header: "header ", Scheme: "scheme ", Query: "query ", Cookie: "cookie ", Certificate: ""}
	return kinds[p.In] + p.Name
}

// Source are the keys of a rule file for the place of a credential in a request. At most one of them is set.
type Source struct {
	Header *string `yaml:"header" oneof:"source,optional" doc:"The name of the header that carries the credential." example:"x-api-key"`
	Scheme *string `yaml:"scheme" oneof:"source,optional" doc:"The scheme of the Authorization header that carries the credential." example:"ApiKey"`
	Query  *string `yaml:"query" oneof:"source,optional" doc:"The name of the query parameter that carries the credential." example:"api_key"`
	Cookie *string `yaml:"cookie" oneof:"source,optional" doc:"The name of the cookie that carries the credential." example:"session"`
}

// SourcePaths returns the paths of all keys of a Source that is at a path.
func SourcePaths(path string) []string {
	return []string{path + ".header", path + ".scheme", path + ".query", path + ".cookie"}
}

// Place returns the place that is set.
func (s Source) Place() Place {
	switch {
	case s.Header != nil:
		return Place{Header, strings.ToLower(*s.Header)}
	case s.Scheme != nil:
		return Place{Scheme, *s.Scheme}
	case s.Query != nil:
		return Place{Query, *s.Query}
	case s.Cookie != nil:
		return Place{Cookie, *s.Cookie}
	}
	return Place{}
}

// Check reports a place that cannot carry a credential.
func (s Source) Check(m *ratelimit.Mistakes, path string) {
	switch at := s.Place(); {
	case at == Place{Header, "cookie"}:
		m.At(path+".header").Fail("the header `cookie` has many values", "for one cookie, write `cookie: <its name>`")
	case at.In == Header && (EndsAtProxy(at.Name) || at.Name == "host" || at.Name == "content-length"):
		m.At(path+".header").Fail(
			suggest.Quoted(at.Name)+" cannot carry a credential: Envoy and HTTP use it themselves",
			"choose a header such as `x-api-key`")
	case at.In == Scheme && !httpguts.ValidHeaderFieldName(at.Name):
		m.At(path+".scheme").Fail(suggest.Quoted(at.Name)+" cannot be a scheme of the Authorization header",
			"want one word, such as `ApiKey` or `Bearer`")
	case at.In == Query && (at.Name == "" || strings.ContainsAny(at.Name, "?&=#")):
		m.At(path+".query").Fail(suggest.Quoted(at.Name)+" cannot be the name of a query parameter",
			"want the name alone, such as `api_key`")
	case at.In == Cookie && !httpguts.ValidHeaderFieldName(at.Name):
		m.At(path+".cookie").Fail(
			suggest.Quoted(at.Name)+" cannot be the name of a cookie", "want the name alone, such as `session`")
	}
}

// EndsAtProxy reports whether a header ends at the next proxy (RFC 9110, 7.6.1).
func EndsAtProxy(header string) bool {
	return slices.Contains([]string{
		"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
		"transfer-encoding", "upgrade",
	}, header)
}
