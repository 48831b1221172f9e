// Package httpheader knows which names of headers can be sent, and which of them an operator may choose.
package httpheader

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Names are names of headers that can be sent: valid, in lower case, sorted, and each once. They do not change.
type Names struct{ list []string }

// NewNames returns the names that can be sent. It leaves out the others.
func NewNames(names []string) *Names {
	var n Names
	for _, name := range names {
		if lower, ok := Sendable(name); ok {
			n.list = append(n.list, lower)
		}
	}
	slices.Sort(n.list)
	n.list = slices.Clip(slices.Compact(n.list))
	return &n
}

// List returns the names, which the caller must not change. A nil n has none.
func (n *Names) List() []string {
	if n == nil {
		return nil
	}
	return n.list
}

// Has reports whether a name in lower case is among them.
func (n *Names) Has(name string) bool {
	_, has := slices.BinarySearch(n.List(), name)
	return has
}

// Sendable returns the name of a header in lower case. ok is false if no header may have it, such as a pseudo header.
func Sendable(name string) (lower string, ok bool) {
	if !isLowerName(name) {
		if !httpguts.ValidHeaderFieldName(name) {
			return "", false
		}
		name = strings.ToLower(name)
	}
	return name, !reserved(name)
}

// isLowerName reports whether a text is a name of lower-case letters, digits, `-` and `_`, as almost all names are.
func isLowerName(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return text != ""
}

// reserved reports whether a header determines how a message is framed and routed. If this service changed one, Envoy
// and the upstream could disagree about where a message ends. The last one is for Envoy.
func reserved(name string) bool {
	switch name {
	case "connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
		"upgrade", HeadersToRemove:
		return true
	}
	return false
}

// HeadersToRemove is the header that lists the headers that Envoy must remove from the request, over HTTP.
const HeadersToRemove = "x-envoy-auth-headers-to-remove"

// Misnamed reports why no header of an answer may have a name that an operator has chosen, "" for a good name.
func Misnamed(name string) (why string) {
	lower, sendable := Sendable(name)
	switch {
	case strings.HasPrefix(name, ":"):
		return "is a pseudo-header of HTTP/2, not a header"
	case !httpguts.ValidHeaderFieldName(name):
		return "cannot be the name of a header"
	case !sendable:
		return "decides where a message ends or where it goes, so no answer may set it"
	case means(lower):
		return "means something else in an answer"
	}
	return ""
}

// means reports whether clients, Envoy or this service give a header of an answer another meaning.
func means(name string) bool {
	switch name {
	case "authorization", "cookie", "location", "set-cookie", "www-authenticate":
		return true
	}
	return slices.ContainsFunc([]string{"content-", "grpc-", "x-envoy-", "x-ext-authz-"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
