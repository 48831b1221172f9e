package flow

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

// ServeJSON answers a RateLimitRequest in JSON with a RateLimitResponse in JSON. The status is 200 if the request may
// pass and 429 if it is over the limit. It is 400 for an unreadable request and 503 for an undecided one. The headers
// for the client are in the body, as in envoyproxy/ratelimit, and are also headers of this response.
func (f *Flow) ServeJSON(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, rls.MaxJSON+1))
	if err != nil {
		http.Error(w, "the request could not be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	message, err := rls.FromJSON(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b := f.newSingle(r.Context())
	c := b.add(RateLimit, string(message)) // without a deadline: the answer is not held
	c.span = f.cfg.Traces.Start(spanNames[RateLimit], r.Header)
	b.wait()
	defer b.release()
	defer c.span.EndHTTP()
	if r.Context().Err() != nil {
		f.undo(c.method, b.leave(c))
	}
	if c.err != nil {
		http.Error(w, c.err.Error(), jsonError(c.err))
		return
	}
	answer, headers, err := rls.ToJSON(c.reply)
	if err != nil {
		http.Error(w, "the answer could not be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	for _, h := range headers {
		w.Header().Set(h.Name, h.Value)
	}
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(jsonStatus(&c.result))
	_, _ = w.Write(append(answer, '\n')) // an error means that the client has gone
}

func jsonStatus(res *ratelimit.Result) int {
	switch {
	case res.Allowed:
		return http.StatusOK
	case res.Decider == ratelimit.FromPolicyDeny:
		return reply.ReasonUndecided.Status()
	}
	return reply.ReasonOverLimit.Status()
}

func jsonError(err error) int {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		switch e.Code {
		case wire.InvalidArgument:
			return http.StatusBadRequest
		case wire.Internal:
			return http.StatusInternalServerError
		}
	}
	return http.StatusServiceUnavailable
}

// HTTPConfig are the settings of checks over HTTP.
type HTTPConfig struct {
	// Headers name the headers that Envoy adds.
	Headers auth.HTTPHeaders
	// NeedsAddress reports whether a decision over HTTP depends on the peer's address. Without Headers.Source, the first
	// such request logs a warning. Required.
	NeedsAddress func() bool
	// Timeout is how long Envoy waits (server_uri.timeout), because Envoy does not send it. Required.
	Timeout time.Duration
	// Log gets once what an operator must check. Required.
	Log *slog.Logger
}

// Checks returns a handler that answers requests below auth.HTTPPath, as Envoy's http_service sends them, and passes
// all others to next. It must not be behind an http.ServeMux, which answers paths such as //a and /a/../b itself.
func (f *Flow) Checks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := auth.CutHTTPPath(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		f.warnOfHTTP()
		f.check(w, r, auth.HTTPPath, auth.HTTPRequest(r, path, f.cfg.HTTP.Headers))
	})
}

// ServeQuota answers a request for the quota of its client, which Envoy has routed here. It is decided as a Check for
// the quota path, but no header tells the address or the certificate of the client: the client could have sent it.
func (f *Flow) ServeQuota(w http.ResponseWriter, r *http.Request) {
	request := auth.HTTPRequest(r, r.RequestURI, auth.HTTPHeaders{})
	request.Quota = authz.QuotaAlways
	f.check(w, r, auth.QuotaPath, request)
}

func (f *Flow) warnOfHTTP() {
	f.overHTTP.Do(func() {
		f.cfg.HTTP.Log.Info("Envoy asks over HTTP: of an answer it passes on only the headers that allowed_upstream_headers "+
			"lists, which the service cannot see (logged once)", "compare", "extauthz check --envoy FILE DIR")
	})
	if f.cfg.HTTP.Headers.Source == "" && f.cfg.HTTP.NeedsAddress() {
		f.noAddress.Do(func() {
			f.cfg.HTTP.Log.Warn("Envoy asks over HTTP without the address of the client, so all clients have the " +
				"remote_address \"unknown\" and share its limits: one client can use them up for all. " +
				"Have Envoy send the address (headers_to_add) and name its header in AUTHZ_HTTP_SOURCE_HEADER, " +
				"ask over gRPC, or give the value unknown a rule with `rate_limit: {unlimited: true}` (logged once)")
		})
	}
}

// check answers a request over HTTP, which counts as a call of a method.
func (f *Flow) check(w http.ResponseWriter, r *http.Request, method string, request *authz.Request) {
	arrived := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), f.cfg.HTTP.Timeout)
	defer cancel()
	b := f.newSingle(ctx)
	b.keep, b.began = true, arrived
	c := b.add(Check, "")
	c.deadline, _ = ctx.Deadline()
	c.check.request = request
	c.span = f.cfg.Traces.Start(spanNames[Check], r.Header)
	b.wait()
	defer b.release()
	defer c.span.EndHTTP()
	if errors.Is(c.err, errInternal) {
		http.Error(w, c.err.Error(), http.StatusInternalServerError)
		return
	}
	d := &c.check.pending.Decision
	if c.err != nil || c.delay > 0 && !f.cfg.Queue.Stay(ctx, c.delay, c.places) { // the caller or its time has gone
		late(d)
		c.check.answer.Decide(c.check.request, d)
	}
	if ctx.Err() != nil {
		f.undo(c.method, b.leave(c))
	}
	c.check.answer.WriteHTTP(w)
	code := codes.OK
	if d.Verdict == authz.Undecided { // 503, which is an error to Envoy
		code = codes.Unavailable
	}
	f.cfg.Calls.Of(method).Observe(code, time.Since(arrived))
}
