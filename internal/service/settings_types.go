package service

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/pkg/reply"
)

// Types of settings that are more than text. The error of UnmarshalText names the wanted form.

type logLevel slog.Level

// UnmarshalText accepts the levels of envoyproxy/ratelimit. Levels below debug become debug, and levels above error
// become error.
func (l *logLevel) UnmarshalText(text []byte) error {
	v := string(text)
	switch strings.ToLower(v) {
	case "trace", "debug":
		*l = logLevel(slog.LevelDebug)
	case "info":
		*l = logLevel(slog.LevelInfo)
	case "warn", "warning":
		*l = logLevel(slog.LevelWarn)
	case "error", "fatal", "panic":
		*l = logLevel(slog.LevelError)
	default:
		return fmt.Errorf("want DEBUG, INFO, WARN or ERROR%s", DidYouMean(v, "DEBUG", "INFO", "WARN", "ERROR"))
	}
	return nil
}

type headerSets []reply.Set

// UnmarshalText accepts a list of header sets.
func (h *headerSets) UnmarshalText(text []byte) error {
	sets, err := reply.ParseSets(strings.ToLower(string(text)))
	*h = sets
	if err != nil {
		return errors.New("want draft, triple, x, spring, several with commas, or off; x and spring both send " +
			"X-RateLimit-Remaining, so take one of them")
	}
	return nil
}

type headerName string

// UnmarshalText accepts the name of a header.
func (h *headerName) UnmarshalText(text []byte) error {
	*h = headerName(strings.ToLower(string(text)))
	if !httpguts.ValidHeaderFieldName(string(text)) {
		return errors.New("want the name of a header, such as X-Forwarded-For: letters, digits and hyphens")
	}
	return nil
}
