package auth

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/reply"
)

// HTTPPath is the path_prefix of Envoy's http_service.
const HTTPPath = "/check"

// HTTPConfig are the settings of the HTTP service.
type HTTPConfig struct {
	// SourceHeader and PrincipalHeader name the headers in which Envoy sends the peer's address and the identity in its
	// certificate. Envoy must set them with authorization_request.headers_to_add, which replaces headers of the client.
	// Default: none, both are unknown.
	SourceHeader, PrincipalHeader string
	// NeedsAddress reports whether a decision over HTTP depends on the peer's address. Without a SourceHeader, the first
	// such request logs a warning. Required for HTTP.
	NeedsAddress func() bool
	// Timeout is how long Envoy waits (server_uri.timeout), because Envoy does not send it. Required for HTTP.
	Timeout time.Duration
	// Observe receives the verdict of each answer and how long it took. Required for HTTP.
	Observe func(verdict authz.Verdict, took time.Duration)
}

// metadataPrefix begins the headers for dynamic_metadata_from_headers.
const metadataPrefix = "x-ext-authz-"

// HTTP returns a handler that answers requests below HTTPPath, as Envoy's http_service sends them, and passes all
// others to next. It must not be behind an http.ServeMux, which answers paths such as //a and /a/../b itself.
//
// Status 200 allows the request. It has headers for the upstream (allowed_upstream_headers must list them) and for the
// client (allowed_client_headers_on_success). Headers that begin with x-ext-authz- hold what dynamic_metadata holds
// over gRPC (dynamic_metadata_from_headers). Another header names headers to remove, which Envoy removes without
// configuration. Status 4xx refuses the request, with headers and a body for the client (allowed_client_headers).
// Status 503 is an error to Envoy: status_on_error and failure_mode_allow decide.
func (s *Server) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.RequestURI, HTTPPath)
		if !ok || !strings.HasPrefix(rest, "/") && rest != "*" { // * is the path of OPTIONS for a whole server
			next.ServeHTTP(w, r)
			return
		}
		begin := time.Now()
		s.overHTTP.Do(func() {
			s.cfg.Log.Info("Envoy asks over HTTP: of an answer it passes on only the headers that allowed_upstream_headers "+
				"lists, which the service cannot see (logged once)", "compare", "extauthz check --envoy FILE DIR")
		})
		if s.cfg.HTTP.SourceHeader == "" && s.cfg.HTTP.NeedsAddress() {
			s.noAddress.Do(func() {
				s.cfg.Log.Warn("Envoy asks over HTTP without the address of the client, so all clients have the " +
					"remote_address \"unknown\" and share its limits: one client can use them up for all. " +
					"Have Envoy send the address (headers_to_add) and name its header in AUTHZ_HTTP_SOURCE_HEADER, " +
					"ask over gRPC, or give the value unknown a rule with `rate_limit: {unlimited: true}` (logged once)")
			})
		}
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.HTTP.Timeout)
		defer cancel()
		c := new(check)
		s.decide(ctx, c, s.httpRequest(r, rest))
		c.answer.writeHTTP(w)
		s.cfg.HTTP.Observe(c.pending.Decision.Verdict, time.Since(begin))
	})
}

// httpRequest reads a request of Envoy. Its domain is always the default one: over gRPC the route names another, but
// here the name would come from the client.
func (s *Server) httpRequest(r *http.Request, path string) *authz.Request {
	req := &authz.Request{
		HTTP: true, Method: r.Method, Host: r.Host, Path: path,
		// As over gRPC. net/http refuses headers with such names.
		Headers: authz.Headers{
			{Name: ":method", Value: r.Method}, {Name: ":authority", Value: r.Host}, {Name: ":path", Value: path},
		},
	}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		for _, value := range values {
			req.Headers = append(req.Headers, reply.Header{Name: name, Value: value})
		}
	}
	req.Source = only(r.Header, s.cfg.HTTP.SourceHeader)
	req.Principal = only(r.Header, s.cfg.HTTP.PrincipalHeader)
	return req
}

// only returns the value of a header if there is exactly one, else "".
func only(h http.Header, name string) string {
	if name == "" {
		return ""
	}
	values := h.Values(name)
	if len(values) != 1 || values[0] == "-" { // Envoy writes - for an unknown value
		return ""
	}
	return values[0]
}

func (a *answer) writeHTTP(w http.ResponseWriter) {
	h := w.Header()
	for _, one := range a.toClient {
		h.Add(one.Name, one.Value)
	}
	if a.decision.Verdict != authz.Allowed {
		if h.Get("content-type") == "" {
			h["Content-Type"] = nil // otherwise net/http would guess one
		}
		w.WriteHeader(a.httpStatus())
		_, _ = w.Write([]byte(a.body)) // an error means that Envoy has gone
		return
	}
	for _, one := range a.toUpstream {
		h.Set(one.Name, one.Value)
	}
	if len(a.remove) > 0 {
		h.Set(reply.HeadersToRemove, strings.Join(a.remove, ","))
	}
	for _, f := range facts(a.decision) {
		if value, ok := sendableValue(f.value); ok && value != "" {
			h.Set(metadataPrefix+strings.ReplaceAll(f.name, "_", "-"), value)
		}
	}
	if b := a.decision.Limits.Binding(); b != nil {
		h.Set(metadataPrefix+"remaining", strconv.FormatInt(b.Binding.Decision.Remaining, 10))
	}
	w.WriteHeader(http.StatusOK)
}

// httpStatus returns the status of a refusal: below 500, which would be an error to Envoy, unless it is undecided.
func (a *answer) httpStatus() int {
	if a.decision.Verdict != authz.Undecided && a.status >= http.StatusInternalServerError {
		return http.StatusForbidden
	}
	return a.status
}
