package auth

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// maxLogged bounds a client's value in a log line.
const maxLogged = 256

// log writes the log line of a decision. Values that a client can choose are logged only with LogClientValues. That
// includes the owner, which a token or certificate names. The line never has the query, a header other than
// x-request-id, or another value that could be a credential. key_id is the public part of a key, or the name of an
// issuer's key.
func (s *Server) log(ctx context.Context, r *authz.Request, a *answer, took time.Duration) {
	if !s.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	d := a.decision
	attrs := make([]slog.Attr, 0, 20)
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value[:min(len(value), maxLogged)]))
		}
	}
	text("verdict", verdict(d.Verdict))
	text("reason", string(d.Reason))
	text("domain", d.Domain)
	text("method", d.Identity.Method)
	text("key_id", d.Identity.KeyID)
	text("rule", d.Limits.Binding().RuleName())
	if a.status != 0 {
		attrs = append(attrs, slog.Int("status", a.status))
	}
	if a.dropped > 0 {
		attrs = append(attrs, slog.Int("dropped_headers", a.dropped))
	}
	if d.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", time.Duration(d.Delay)*time.Microsecond))
	}
	attrs = append(attrs, slog.Duration("took", took))
	if s.cfg.LogClientValues {
		text("owner", d.Identity.Owner)
		text("plan", d.Identity.Plan)
		text("http_method", r.Method)
		text("host", r.Host)
		path, _, _ := strings.Cut(r.Path, "?")
		text("path", path)
		text("source", r.Source)
		id, _ := r.Headers.Get("x-request-id")
		text("request_id", id)
	}
	// Write the line even if the caller has gone.
	s.cfg.Log.LogAttrs(context.WithoutCancel(ctx), slog.LevelDebug, "decided", attrs...)
}

func verdict(v authz.Verdict) string {
	switch v {
	case authz.Allowed:
		return "allowed"
	case authz.Undecided:
		return "undecided"
	}
	return "refused"
}
