package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// linesPerSecond is how many denials by one limit, or for one reason without a limit, the log has in a second.
const linesPerSecond = 10

// DecisionLogConfig are the settings of a DecisionLog.
type DecisionLogConfig struct {
	// Log receives the lines. Required.
	Log *slog.Logger
	// Rules returns the active rules, which explain why a descriptor matches none. Required.
	Rules func() *ratelimit.Rules
	// Values adds values that clients choose. Default: HideValues.
	Values ratelimit.ClientValues
}

// DecisionLog writes the decisions of both services to a log. At DEBUG, each decision has a line. At INFO, each denial
// has a line, also one in shadow, up to linesPerSecond for each limit. Further denials are counted, and a line has
// their number within a second. It is safe for concurrent use.
type DecisionLog struct {
	cfg DecisionLogConfig
	// reasons are the gates of denials without a limit of a rule.
	reasons map[reply.Reason]*ratelimit.Gate

	mu   sync.Mutex
	left []leftOut
}

// NewDecisionLog returns a log of decisions.
func NewDecisionLog(cfg DecisionLogConfig) *DecisionLog {
	l := &DecisionLog{cfg: cfg, reasons: make(map[reply.Reason]*ratelimit.Gate)}
	for _, reason := range reply.Reasons() {
		l.reasons[reason] = new(ratelimit.Gate)
	}
	return l
}

// RateLimit logs a decision of the rate limit service.
func (l *DecisionLog) RateLimit(q *ratelimit.Query, res *ratelimit.Result) {
	d := rateLimitDecision(q, res)
	if !l.admits(&d) {
		return
	}
	attrs := d.attrs(res)
	if _, ok := errors.AsType[ratelimit.QueryError](res.Err); ok || errors.Is(res.Err, ratelimit.ErrNoRules) {
		attrs = append(attrs, text("error", res.Err.Error())...) // not that of a store, which may have an address
	}
	l.write(&d, append(attrs, l.descriptors(&d, q, res, l.cfg.Values)...))
}

// Check logs a decision of ext_authz. The line never has the query of a path, a header other than x-request-id, or
// another value that could be a credential. key_id is the public part of a key, or the name of an issuer's key.
func (l *DecisionLog) Check(c *authz.Checked) {
	d := checkDecision(c)
	if !l.admits(&d) {
		return
	}
	attrs := append(d.attrs(c.Decision.Limits), checkAttrs(c)...)
	if r := c.Request; l.cfg.Values == ratelimit.ShowValues {
		id, _ := r.Headers.Get("x-request-id")
		path, _, _ := strings.Cut(r.Path, "?")
		attrs = append(attrs, text("owner", c.Decision.Identity.Owner, "plan", c.Decision.Identity.Plan,
			"http_method", r.Method, "host", r.Host, "path", path, "source", r.Source, "request_id", id)...)
	}
	if c.Query != nil {
		// The policy can make values of any header, also of one with a credential.
		attrs = append(attrs, l.descriptors(&d, c.Query, c.Result, ratelimit.HideValues)...)
	}
	l.write(&d, attrs)
}

func (l *DecisionLog) debugs() bool {
	return l.cfg.Log.Enabled(context.Background(), slog.LevelDebug)
}

// admits reports whether a decision has a line. If not, it counts a denial.
func (l *DecisionLog) admits(d *decision) bool {
	switch {
	case l.debugs():
		return true
	case d.passes() || !l.cfg.Log.Enabled(context.Background(), slog.LevelInfo):
		return false
	}
	gate := l.reasons[d.reason]
	if d.limit != nil && d.limit.Limit.DenialLines != nil {
		gate = d.limit.Limit.DenialLines
	}
	if gate == nil || gate.Pass(time.Now().Unix(), linesPerSecond) {
		return true
	}
	if gate.LeftOut.Add(1) == 1 {
		d.domain = strings.Clone(d.domain) // the line is written later
		l.remember(leftOut{gate, d.who()})
	}
	return false
}

func (l *DecisionLog) write(d *decision, attrs []slog.Attr) {
	level := slog.LevelInfo
	if d.passes() {
		level = slog.LevelDebug
	}
	l.cfg.Log.LogAttrs(context.Background(), level, "decided", attrs...)
}

// leftOut are denials without lines: their number, and what the first of them is about.
type leftOut struct {
	gate *ratelimit.Gate
	who  []slog.Attr
}

// remember has the number of denials without lines logged within a second.
func (l *DecisionLog) remember(left leftOut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == nil {
		time.AfterFunc(time.Second, l.Flush)
	}
	l.left = append(l.left, left)
}

// Flush logs how many denials have no lines. Call it after the last decision. It does nothing for nil.
func (l *DecisionLog) Flush() {
	if l == nil {
		return
	}
	l.mu.Lock()
	all := l.left
	l.left = nil
	l.mu.Unlock()
	for _, left := range all {
		attrs := append(left.who, slog.Uint64("left_out", left.gate.LeftOut.Swap(0)))
		l.cfg.Log.LogAttrs(context.Background(), slog.LevelInfo, "decided, without a line for each", attrs...)
	}
}

// LogMisses returns a function for ratelimit.Config.Missed, which logs a warning. It never has the values of entries.
func LogMisses(log *slog.Logger) func(rules *ratelimit.Rules, domain string, entries []descriptors.Entry) {
	return func(rules *ratelimit.Rules, domain string, entries []descriptors.Entry) {
		attrs := text("domain", domain)
		if len(entries) > 0 {
			keys, _ := textsOf(entries)
			attrs = append(attrs, slog.Any("keys", keys))
		}
		attrs = append(attrs, text("miss", rules.Miss(domain, entries, ratelimit.HideValues))...)
		log.LogAttrs(context.Background(), slog.LevelWarn,
			"no rule matches, so no limit applies (logged once an hour for each domain and keys)", attrs...)
	}
}

// textsOf returns the keys and the values of entries for a log line.
func textsOf(entries []descriptors.Entry) (keys, values []string) {
	for _, e := range entries {
		keys, values = append(keys, cut(e.Key)), append(values, cut(e.Value))
	}
	return keys, values
}
