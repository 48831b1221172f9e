package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// panics counts and logs panics that a request caused: bugs of extauthz. The request gets an error instead.
type panics struct {
	log    *slog.Logger
	count  prometheus.Counter
	logged logLimiter
}

func newPanics(log *slog.Logger, r prometheus.Registerer) *panics {
	return &panics{log: log, count: promauto.With(r).NewCounter(prometheus.CounterOpts{
		Name: "extauthz_panics_total", Help: "Requests that failed because of a bug of the service. The log has the stack.",
	})}
}

// caught counts and logs a panic. The place is a method or a type of message, never a value that a client chose. caught
// must run in the deferred function that recovered, so that the stack is that of the panic.
func (p *panics) caught(where string, value any) {
	p.count.Inc()
	if p.logged.allow(where) {
		p.log.Error("bug: a request caused a panic and got an error (logged once a minute for each place)", "where", where,
			"panic", panicText(value), "stack", string(debug.Stack()))
	}
}

// panicText returns what may be logged of a panic. Errors of the runtime have only numbers and types. Any other value
// may contain data of the client, so only its type is logged.
func panicText(value any) string {
	if err, ok := value.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", value)
}

// handler answers with 500 if next panics. A panic with http.ErrAbortHandler is not a bug: it closes the connection.
func (p *panics) handler(where string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			value := recover()
			if value == http.ErrAbortHandler { //nolint:errorlint // the panic has exactly this value
				panic(value)
			}
			if value != nil {
				p.caught(where, value)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// observeUndecided returns a function that counts requests that the store cannot decide. It logs why a reachable Redis
// cannot, for example because its memory is full, a key has another type, or it is slow.
func observeUndecided(log *slog.Logger, r prometheus.Registerer) func(error) {
	var logged logLimiter
	counts := map[string]prometheus.Counter{} // by reason; "other" for an unknown error of a server
	byReason := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "extauthz_store_undecided_total", Help: "Requests that the store could not decide, by reason.",
	}, []string{"reason"})
	for _, reason := range append(redisstore.Reasons(), "other") {
		counts[reason] = byReason.WithLabelValues(reason)
	}
	return func(err error) {
		reason := redisstore.Reason(err)
		cmp.Or(counts[reason], counts["other"]).Inc()
		if errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, context.Canceled) {
			return // the log has a line about an unreachable Redis; a canceled request is no error of the store
		}
		if logged.allow(reason) {
			log.Warn("Redis did not decide; on_store_error applied (logged once a minute for each reason)", "reason", reason)
		}
	}
}
