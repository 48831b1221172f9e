package service

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/reply"
)

// Types of settings that are more than text: Decode (envconfig.Decoder) says what was wanted.

type logLevel slog.Level

// Decode takes the levels of envoyproxy/ratelimit; those below debug and above error are the nearest that there is.
func (l *logLevel) Decode(v string) error {
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
		return fmt.Errorf("want DEBUG, INFO, WARN or ERROR%s", meant(v, "DEBUG", "INFO", "WARN", "ERROR"))
	}
	return nil
}

// oneOf decodes a word of a list into dst, in the list's own spelling.
func oneOf[T ~string](dst *T, v string, words ...T) error {
	for _, w := range words {
		if strings.EqualFold(v, string(w)) {
			*dst = w
			return nil
		}
	}
	text := make([]string, len(words))
	for i, w := range words {
		text[i] = string(w)
	}
	return fmt.Errorf("want %s%s", strings.Join(text, " or "), meant(v, text...))
}

// meant is the end of an error for a misspelt word. The word itself is not shown.
func meant(v string, words ...string) string {
	if word := suggest.Closest(v, words); word != "" {
		return fmt.Sprintf(" (did you mean %s?)", word)
	}
	return ""
}

type logFormat string

// Decode takes text or json.
func (f *logFormat) Decode(v string) error { return oneOf(f, v, "text", "json") }

type compatibility string

// Decode takes default or strict.
func (c *compatibility) Decode(v string) error { return oneOf(c, v, "default", "strict") }

type bodyKind string

// Decode takes problem or off.
func (b *bodyKind) Decode(v string) error { return oneOf(b, v, "problem", "off") }

type plaintext string

// Decode takes allow.
func (p *plaintext) Decode(v string) error { return oneOf(p, v, "allow") }

type socketType string

// Decode takes tcp, tls or unix.
func (s *socketType) Decode(v string) error { return oneOf(s, v, "tcp", "tls", "unix") }

type configType string

// Decode takes FILE.
func (c *configType) Decode(v string) error {
	if strings.EqualFold(v, "GRPC_XDS_SOTW") {
		return fmt.Errorf("rules from an xDS server are not supported yet: want FILE")
	}
	return oneOf(c, v, "FILE")
}

type redisType string

// Decode takes SINGLE.
func (r *redisType) Decode(v string) error {
	if strings.EqualFold(v, "SENTINEL") || strings.EqualFold(v, "CLUSTER") {
		return fmt.Errorf("this type is not supported yet: want SINGLE")
	}
	return oneOf(r, v, "SINGLE")
}

type backendType string

// Decode takes memory or redis.
func (b *backendType) Decode(v string) error {
	if strings.EqualFold(v, "memcache") {
		return fmt.Errorf("memcached cannot decide exactly and is not supported: want memory or redis")
	}
	return oneOf(b, v, "memory", "redis")
}

// Algorithm is the name of an algorithm.
type Algorithm bucket.Algorithm

// Decode takes the name of an algorithm.
func (a *Algorithm) Decode(v string) error {
	parsed, err := bucket.ParseAlgorithm(v)
	if err != nil {
		names := bucket.AlgorithmNames()
		return fmt.Errorf("want one of %s%s", strings.Join(names, ", "), meant(v, names...))
	}
	*a = Algorithm(parsed)
	return nil
}

type storeErrorPolicy ratelimit.StoreErrorPolicy

// Decode takes local, allow or deny.
func (p *storeErrorPolicy) Decode(v string) error {
	parsed, ok := ratelimit.ParseStoreErrorPolicy(strings.ToLower(v))
	if !ok {
		return fmt.Errorf("want local, allow or deny%s", meant(v, "local", "allow", "deny"))
	}
	*p = storeErrorPolicy(parsed)
	return nil
}

type headerSets []reply.Set

// Decode takes a list of header sets.
func (h *headerSets) Decode(v string) error {
	sets, err := reply.ParseSets(strings.ToLower(v))
	*h = sets
	if err != nil {
		return errors.New("want draft, triple, x, spring, several with commas, or off; x and spring both send X-RateLimit-Remaining, so take one of them")
	}
	return nil
}

type headerName string

// Decode takes a header's name.
func (h *headerName) Decode(v string) error {
	*h = headerName(strings.ToLower(v))
	if reply.CheckName(v) != nil {
		return errors.New("want the name of a header, such as X-Forwarded-For: letters, digits and hyphens")
	}
	return nil
}
