package telemetry

import (
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
)

// sdkLog receives what the SDK of OpenTelemetry logs about variables that it cannot read. It leaves out their values
// and the text of errors, which can have secrets: a header with a key, a URL with a password.
type sdkLog struct{ log *slog.Logger }

// Init implements logr.LogSink.
func (sdkLog) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (sdkLog) Enabled(int) bool { return true }

// Info logs a number that cannot be read, and nothing else.
func (l sdkLog) Info(_ int, message string, values ...any) {
	if len(values) == 0 {
		return
	}
	if name, ok := values[0].(string); ok && strings.HasPrefix(name, "OTEL_") {
		l.report(message, "variable", name)
	}
}

// Error implements logr.LogSink.
func (l sdkLog) Error(_ error, message string, _ ...any) { l.report(message) }

func (l sdkLog) report(problem string, more ...any) {
	l.log.Error("OpenTelemetry cannot use one of the variables OTEL_* and ignores it",
		append([]any{"problem", problem}, more...)...)
}

// WithValues implements logr.LogSink.
func (l sdkLog) WithValues(...any) logr.LogSink { return l }

// WithName implements logr.LogSink.
func (l sdkLog) WithName(string) logr.LogSink { return l }
