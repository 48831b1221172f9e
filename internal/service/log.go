package service

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// newLogger writes to stderr in the format and from the level on that the settings say.
func newLogger(s *Settings, stderr io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(s.LogLevel)}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(stderr, o))
	}
	return slog.New(slog.NewTextHandler(stderr, o))
}

// logAlways logs at level INFO, whatever LOG_LEVEL is: a handler does not look at the level itself.
func logAlways(log *slog.Logger, message string, args ...any) {
	record := slog.NewRecord(time.Now(), slog.LevelInfo, message, 0)
	record.Add(args...)
	_ = log.Handler().Handle(context.Background(), record) // as slog itself: a log that cannot be written has no other place
}
