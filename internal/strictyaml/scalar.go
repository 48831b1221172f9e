package strictyaml

import (
	"errors"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// parseBool reads a plain scalar as a bool of YAML 1.1, as envoyproxy/ratelimit does: yes and on are bools there.
func parseBool(text string) (b, ok bool) {
	switch text {
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// number is a plain scalar that looks like a number.
type number struct {
	// digits are the number without underscores.
	digits string
	// octal means that YAML 1.1 and 1.2 read different numbers: 010 is 8 or 10.
	octal bool
	whole bool
}

// parseNumber reports whether a plain scalar is a number, and what kind of one.
func parseNumber(text string) (n number, ok bool) {
	if !strings.ContainsAny(text[:min(len(text), 1)], "+-.0123456789") {
		return n, false
	}
	n.digits = strings.ReplaceAll(text, "_", "")
	unsigned := strings.TrimLeft(n.digits, "+-")
	n.octal = len(unsigned) > 1 && unsigned[0] == '0' && strings.Trim(unsigned, "0123456789") == ""
	if _, err := strconv.ParseInt(n.digits, 0, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		n.whole = true
		return n, true
	}
	if strings.Trim(n.digits, "+-.eE0123456789") != "" {
		return n, false
	}
	_, err := strconv.ParseFloat(n.digits, 64)
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}

// ambiguous returns the message for a number that YAML readers read differently.
func ambiguous(text string) string {
	return suggest.Quoted(text) + " is ambiguous: a leading 0 means octal to some YAML readers"
}

// resolve returns a plain scalar as a Go value: bool, int64, uint64, float64 or string.
func resolve(text string) any {
	if b, ok := parseBool(text); ok {
		return b
	}
	n, isNumber := parseNumber(text)
	switch lower := strings.ToLower(text); lower {
	case ".nan", ".inf", "+.inf", "-.inf":
		n.digits, isNumber = strings.Replace(lower, ".", "", 1), true
	}
	if i, err := strconv.ParseInt(n.digits, 0, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(n.digits, 0, 64); err == nil {
		return u
	}
	if f, err := strconv.ParseFloat(n.digits, 64); err == nil && isNumber {
		return f
	}
	return text
}
