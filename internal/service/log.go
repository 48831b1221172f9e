package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// newLogger returns a logger that writes to cfg.Stderr in the format and from the level on that the settings name.
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

// terminal writes a text of several lines, such as the mistakes of a rule file, as a block below the line that it belongs to.
// Anywhere else a record stays one line, because programs read it.
type terminal struct {
	slog.Handler
	out io.Writer
	mu  *sync.Mutex // keeps a block below its line
}

// Handle implements slog.Handler.
func (t terminal) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	var blocks strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		if text := a.Value.String(); strings.Contains(text, "\n") {
			fmt.Fprintln(&blocks, strings.TrimRight(text, "\n"))
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

// logAlways logs at level INFO, whatever LOG_LEVEL is: a handler does not look at the level itself.
func logAlways(log *slog.Logger, message string, args ...any) {
	record := slog.NewRecord(time.Now(), slog.LevelInfo, message, 0)
	record.Add(args...)
	_ = log.Handler().Handle(context.Background(), record) // as slog itself: a log that cannot be written has no other place
}

// sayEvery is how often the log repeats a line that requests can cause.
const sayEvery = time.Minute

// sometimes says when to log what can happen at any rate: once a minute for each key, of which there must be few. The zero value
// is ready, and safe for concurrent use.
type sometimes struct {
	mu   sync.Mutex
	said map[string]time.Time
}

// now reports whether to log key now.
func (s *sometimes) now(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.said[key]; ok && time.Since(last) < sayEvery {
		return false
	}
	if s.said == nil {
		s.said = make(map[string]time.Time)
	}
	s.said[key] = time.Now()
	return true
}
