package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

// newLogger returns a logger that writes to cfg.Stderr, with LOG_FORMAT and LOG_LEVEL.
func newLogger(cfg Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(cfg.Settings.LogLevel)}
	switch {
	case cfg.Settings.LogFormat == "json":
		return slog.New(slog.NewJSONHandler(cfg.Stderr, o))
	case cfg.Terminal:
		return slog.New(terminal{slog.NewTextHandler(cfg.Stderr, o), cfg.Stderr, new(sync.Mutex)})
	}
	return slog.New(slog.NewTextHandler(cfg.Stderr, o))
}

// terminal writes an attribute of several lines, such as the mistakes of a rule file, as a block below its log line.
// Without a terminal a record stays one line, because programs read it.
type terminal struct {
	slog.Handler
	out io.Writer
	mu  *sync.Mutex // keeps other lines from between a line and its block
}

// Handle implements slog.Handler.
func (t terminal) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	var blocks strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		if text := a.Value.String(); strings.Contains(text, "\n") {
			fmt.Fprintln(&blocks, strings.Map(visible, strings.TrimRight(text, "\n")))
		} else {
			line.AddAttrs(a)
		}
		return true
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.Handler.Handle(ctx, line); err != nil || blocks.Len() == 0 {
		return err
	}
	_, err := io.WriteString(t.out, blocks.String())
	return err
}

// visible replaces what a terminal would take for a command, such as an escape sequence.
func visible(r rune) rune {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}

// WithAttrs implements slog.Handler.
func (t terminal) WithAttrs(attrs []slog.Attr) slog.Handler {
	t.Handler = t.Handler.WithAttrs(attrs)
	return t
}

// WithGroup implements slog.Handler.
func (t terminal) WithGroup(name string) slog.Handler {
	t.Handler = t.Handler.WithGroup(name)
	return t
}

// logAlways logs at level INFO whatever LOG_LEVEL is, because it skips the logger's check of the level.
func logAlways(log *slog.Logger, message string, args ...any) {
	record := slog.NewRecord(time.Now(), slog.LevelInfo, message, 0)
	record.Add(args...)
	// like slog: an error of the log has no other place
	_ = log.Handler().Handle(context.Background(), record)
}

// logInterval is how often the log repeats a line that requests can cause.
const logInterval = time.Minute

// logLimiter allows a line that requests can cause once in logInterval for each key. There must be few keys. The zero
// value is ready, and safe for concurrent use.
type logLimiter struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// allow reports whether to log the line of key now.
func (l *logLimiter) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[key]; ok && time.Since(last) < logInterval {
		return false
	}
	if l.last == nil {
		l.last = make(map[string]time.Time)
	}
	l.last[key] = time.Now()
	return true
}
