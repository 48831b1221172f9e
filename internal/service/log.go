package service

import (
	"io"
	"log/slog"
)

// NewLogger writes to stderr in the format and from the level on that the settings say.
func NewLogger(s *Settings, stderr io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(s.LogLevel)}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(stderr, o))
	}
	return slog.New(slog.NewTextHandler(stderr, o))
}
