package service

import (
	"net"
	"net/http"
	"strings"

	"github.com/extauthz/extauthz/internal/settings"
)

// notFromPages returns a handler that refuses what a web page of another site makes the browser of an operator send,
// also to loopback. With DNS rebinding, it is the same site to the browser, but with another Host. /check must not be
// behind this handler: its headers are those of a client of Envoy.
func notFromPages(on net.Listener, next http.HandlerFunc) http.Handler {
	loopback := !reachable(on)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			http.Error(w, "This address does not answer requests that a page of another site makes a browser send "+
				"(Sec-Fetch-Site: cross-site). Open the address itself.", http.StatusForbidden)
		case loopback && !isLoopbackName(r.Host):
			http.Error(w, "This port is on loopback, and answers only to the Host localhost or an address such as 127.0.0.1, "+
				"so that no web page reaches it by another name. Ask for http://localhost, or have the proxy send this Host.",
				http.StatusForbidden)
		default:
			next(w, r)
		}
	})
}

// isLoopbackName reports whether a Host names this machine. An empty one does: no browser sends it.
func isLoopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host == "" || strings.HasSuffix(host, ".localhost") || settings.IsLoopback(host)
}
