package auth

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/pkg/authz"
)

// HTTPPath is the path_prefix of Envoy's http_service.
const HTTPPath = "/check"

// QuotaPath is the path to which Envoy routes requests for the quota of a client over HTTP.
const QuotaPath = "/quota"

// HTTPHeaders name the headers in which Envoy sends what http_service does not have. Envoy must set them with
// authorization_request.headers_to_add, which replaces headers of the client. "" means that Envoy does not send it.
type HTTPHeaders struct {
	// Source has the peer's address, Principal the identity in its certificate.
	Source, Principal string
}

// metadataPrefix begins the headers for dynamic_metadata_from_headers.
const metadataPrefix = "x-ext-authz-"

// CutHTTPPath returns the path that the client has asked for, and false for a request that is not below HTTPPath.
func CutHTTPPath(r *http.Request) (path string, ok bool) {
	path, ok = strings.CutPrefix(r.RequestURI, HTTPPath)
	return path, ok && (strings.HasPrefix(path, "/") || path == "*") // * is the path of OPTIONS for a whole server
}

// HTTPRequest returns a request of Envoy for a path. It reads no quota, because status 200 would allow it. Its domain
// is always the default one: over gRPC the route names another, but here the name would come from the client.
func HTTPRequest(r *http.Request, path string, from HTTPHeaders) *authz.Request {
	req := &authz.Request{
		HTTP: true, Method: r.Method, Host: r.Host, Path: path, Quota: authz.QuotaNever,
		// As over gRPC. net/http refuses headers with such names.
		Headers: authz.Headers{
			{Name: ":method", Value: r.Method}, {Name: ":authority", Value: r.Host}, {Name: ":path", Value: path},
		},
	}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		for _, value := range values {
			req.AddHeader(name, value)
		}
	}
	req.Source = only(r.Header, from.Source)
	req.Principal = only(r.Header, from.Principal)
	return req
}

// only returns the value of a header if there is exactly one, else "". No header has the name "".
func only(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) != 1 || values[0] == "-" { // Envoy writes - for an unknown value
		return ""
	}
	return values[0]
}

// WriteHTTP answers a request of Envoy's http_service. Status 200 allows the request. It has headers for the upstream
// (allowed_upstream_headers must list them) and for the client (allowed_client_headers_on_success). Headers that begin
// with x-ext-authz- hold what dynamic_metadata holds over gRPC (dynamic_metadata_from_headers). Another header names
// headers to remove, which Envoy removes without configuration. Status 4xx refuses the request, with headers and a body
// for the client (allowed_client_headers). For status 503, Envoy's status_on_error and failure_mode_allow decide.
func (a *Answer) WriteHTTP(w http.ResponseWriter) {
	h := w.Header()
	for _, one := range a.toClient {
		h.Add(one.Name, one.Value)
	}
	if a.decision.Verdict != authz.Allowed {
		if h.Get("content-type") == "" {
			h["Content-Type"] = nil // otherwise net/http would guess one
		}
		status := a.Status
		if a.decision.Verdict != authz.Undecided && status >= http.StatusInternalServerError {
			status = http.StatusForbidden // a status of 500 and above would be an error to Envoy
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(a.body)) // an error means that Envoy has gone
		return
	}
	for _, one := range a.toUpstream {
		h.Set(one.Name, one.Value)
	}
	if remove := slices.Concat(a.decision.Strip.List(), a.remove); len(remove) > 0 {
		h.Set(httpheader.HeadersToRemove, strings.Join(remove, ","))
	}
	for _, f := range facts(a.decision) {
		if value, ok := sendableValue(f.value); ok && value != "" {
			h.Set(metadataPrefix+strings.ReplaceAll(f.name, "_", "-"), value)
		}
	}
	if b := a.decision.Limits.Tightest(); b != nil {
		h.Set(metadataPrefix+"remaining", strconv.FormatInt(b.Binding.Decision.Remaining, 10))
	}
	w.WriteHeader(http.StatusOK)
}
