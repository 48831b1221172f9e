package service

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/xds"
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
	*h = headerName(text)
	if !httpguts.ValidHeaderFieldName(string(text)) {
		return errors.New("want the name of a header, such as X-Forwarded-For: letters, digits and hyphens")
	}
	return nil
}

type hostPort struct {
	host string
	port uint16
}

// UnmarshalText accepts an address with a port. The address may be empty, which stands for all addresses.
func (a *hostPort) UnmarshalText(text []byte) error {
	host, port, err := net.SplitHostPort(string(text))
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil {
		return errors.New("want an address and a port, such as :9090 or 127.0.0.1:9090")
	}
	*a = hostPort{host, uint16(n)}
	return nil
}

type urlPath string

// UnmarshalText accepts the path of a URL.
func (p *urlPath) UnmarshalText(text []byte) error {
	*p = urlPath(text)
	if !strings.HasPrefix(string(text), "/") {
		return errors.New("want a path that begins with /, such as /metrics")
	}
	return nil
}

type share float64

// UnmarshalText accepts a share, 0 and 1 included.
func (s *share) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(n >= 0 && n <= 1) {
		return errors.New("want a number from 0 to 1, such as 0.1")
	}
	*s = share(n)
	return nil
}

type limitShare float32

// UnmarshalText accepts a share of a limit.
func (s *limitShare) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 32)
	if err != nil || !(n > 0 && n <= 1) {
		return errors.New("want a number above 0 and up to 1, such as 0.8")
	}
	*s = limitShare(n)
	return nil
}

type nodeMetadata map[string]any

// UnmarshalText accepts a JSON object, or the key=value pairs of envoyproxy/ratelimit.
func (n *nodeMetadata) UnmarshalText(text []byte) error {
	metadata, err := xds.ParseMetadata(string(text))
	*n = metadata
	return err
}
