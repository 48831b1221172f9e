package service

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
