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

// panics counts and logs panics that a request caused. Each is a bug in extauthz and must not end the process: the
// request gets an error instead.
type panics struct {
	log   *slog.Logger
	count prometheus.Counter
	said  sometimes
}

func newPanics(log *slog.Logger, r prometheus.Registerer) *panics {
	return &panics{log: log, count: promauto.With(r).NewCounter(prometheus.CounterOpts{
		Name: "extauthz_panics_total", Help: "Requests that failed because of a bug of the service. The log has the stack.",
	})}
}

// caught takes what recover returned, and where: a call's method or a message's type, which no client chooses. It must run in the
// deferred function that recovered, so that the stack is the panic's.
func (p *panics) caught(where string, value any) {
	p.count.Inc()
	if p.said.now(where) {
		p.log.Error("panic: the request got an error (logged once a minute for each place)", "where", where, "panic", panicText(value), "stack", string(debug.Stack()))
	}
}

// panicText is what may be logged of a panic. The runtime's own errors hold numbers and types; any other value may hold what the
// client sent, so only its type is shown.
func panicText(value any) string {
	if err, ok := value.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", value)
}

// handler answers with 500 where next panics. A panic of http.ErrAbortHandler has no bug behind it: it closes the connection.
func (p *panics) handler(where string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			value := recover()
			if value == http.ErrAbortHandler { //nolint:errorlint // it is this value and no other
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
