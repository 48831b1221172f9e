package settings

import (
	"encoding"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/xds"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// wanted is the error of a type of settings. It names the wanted form and never the text, which may be a secret.
type wanted string

func (w wanted) Error() string { return string(w) }

// Word is a value that is one of a list of words.
type Word interface {
	encoding.TextUnmarshaler
	Words() []string
}

// SetWord sets a value to one of its words. Case does not matter. The error does not show the text.
func SetWord(into Word, text string) error {
	if into.UnmarshalText([]byte(strings.ToLower(text))) != nil {
		return fmt.Errorf("want one of %s%s", strings.Join(into.Words(), ", "), suggest.Meant(text, into.Words()...))
	}
	return nil
}

// LogLevel is the minimum level of log lines.
type LogLevel slog.Level

// UnmarshalText accepts the levels of envoyproxy/ratelimit. Debug is the lowest, and error the highest.
func (l *LogLevel) UnmarshalText(text []byte) error {
	level, known := levels[strings.ToLower(string(text))]
	*l = LogLevel(level)
	if !known {
		return wanted("want DEBUG, INFO, WARN or ERROR" + suggest.Meant(string(text), "DEBUG", "INFO", "WARN", "ERROR"))
	}
	return nil
}

var levels = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
	"warning": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError, "panic": slog.LevelError,
}

// HeaderSets are the sets of headers for clients.
type HeaderSets []reply.Set

// UnmarshalText accepts a list of header sets.
func (h *HeaderSets) UnmarshalText(text []byte) error {
	sets, ok := reply.ParseSets(strings.ToLower(string(text)))
	*h = sets
	if !ok {
		return wanted("want draft, triple, x, spring, several with commas, or off; x and spring both send " +
			"X-RateLimit-Remaining, so take one of them")
	}
	return nil
}

// OtherNames are other names of headers, by their usual names. All are in lower case.
type OtherNames map[string]string

// UnmarshalText accepts pairs of names with a colon, separated by commas.
func (h *OtherNames) UnmarshalText(text []byte) error {
	names, err := ParseHeaders(strings.ToLower(string(text)))
	*h = names
	for usual := range names {
		if !slices.Contains(reply.Renamable(), usual) {
			err = wanted("an unknown name")
		}
	}
	if err != nil {
		return wanted("want NAME:OTHER pairs with commas, such as RateLimit:X-Quota; NAME is one of " +
			strings.Join(reply.Renamable(), ", ") + "; LIMIT_LIMIT_HEADER and its like name the headers of triple")
	}
	return nil
}

// HostPort is an address to listen on.
type HostPort struct {
	Host string
	Port uint16
}

// UnmarshalText accepts an address with a port. The address may be empty, which stands for all addresses.
func (a *HostPort) UnmarshalText(text []byte) error {
	host, port, err := net.SplitHostPort(string(text))
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil {
		return wanted("want an address and a port, such as :9090 or 127.0.0.1:9090")
	}
	*a = HostPort{host, uint16(n)}
	return nil
}

// NodeMetadata describes this node to an xDS server.
type NodeMetadata map[string]any

// UnmarshalText accepts a JSON object, or the key=value pairs of envoyproxy/ratelimit.
func (n *NodeMetadata) UnmarshalText(text []byte) error {
	metadata, err := xds.ParseMetadata(string(text))
	if *n = metadata; err != nil {
		return wanted(err.Error())
	}
	return nil
}

// Tags are pairs of a key and a value, sorted by key.
type Tags []telemetry.Tag

// UnmarshalText accepts pairs with a colon, separated by commas.
func (t *Tags) UnmarshalText(text []byte) error {
	*t = nil
	for pair := range strings.SplitSeq(string(text), ",") {
		key, value, ok := strings.Cut(pair, ":")
		if pair == "" && len(text) == 0 {
			return nil
		}
		if !ok || key == "" || value == "" || strings.ContainsAny(pair, "|\n\r") || strings.ContainsAny(key, ".=") {
			return wanted("want key:value pairs with commas between them, such as cluster:east,stage:test")
		}
		*t = append(*t, telemetry.Tag{Key: key, Value: value})
	}
	slices.SortStableFunc(*t, func(a, b telemetry.Tag) int { return strings.Compare(a.Key, b.Key) })
	return nil
}

// isTarget reports whether a text is host:port, or a target of gRPC such as unix:/path or dns:///host:port.
func isTarget(text string) bool {
	schemes := []string{"unix:", "unix-abstract:", "dns:", "passthrough:", "ipv4:", "ipv6:"}
	if slices.ContainsFunc(schemes, func(scheme string) bool { return strings.HasPrefix(text, scheme) }) {
		return true
	}
	var address HostPort
	return address.UnmarshalText([]byte(text)) == nil && address.Host != "" && address.Port != 0
}

// ParseHeaders reads name:value pairs with commas, as envoyproxy/ratelimit does. Its error does not show the values.
func ParseHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	if text == "" {
		return headers, nil
	}
	for i, pair := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(pair, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || !httpguts.ValidHeaderFieldName(name) || strings.HasPrefix(name, "grpc-") {
			return nil, fmt.Errorf("pair %d has no valid name: want name:value pairs with commas, such as x-team:shop,x-zone:a",
				i+1)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("the value of %q has characters that are not printable ASCII", name)
		}
		if _, known := headers[name]; known {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}
