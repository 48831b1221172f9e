package authz

import "strings"

// registeredMethods are those of https://www.iana.org/assignments/http-methods. The first commonMethods are common.
var registeredMethods = [...]string{
	"GET", "POST", "PUT", "HEAD", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY",
	"MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PROPFIND", "PROPPATCH", "QUERY",
	"REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF",
	"VERSION-CONTROL",
}

const commonMethods = 9

// registered returns the registered method that differs from a method only in case, else the method itself. Many
// upstreams take `post` for POST, so the two must share their limits.
func registered(method string) string {
	for _, name := range registeredMethods {
		if strings.EqualFold(name, method) {
			return name
		}
	}
	return method
}
