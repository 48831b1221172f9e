package strictyaml

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// isNull reports whether a plain scalar stands for nothing.
//
// Scalars are read as YAML 1.1 does, in which envoyproxy/ratelimit reads its files: yes and on are bools there.
func isNull(text string) bool {
	return slices.Contains([]string{"", "~", "null", "Null", "NULL"}, text)
}

// parseBool reads a plain scalar as YAML 1.1 does.
func parseBool(text string) (b, ok bool) {
	switch text {
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// number is a plain scalar that looks like one.
type number struct {
	// digits are the number without underscores.
	digits string
	// octal says that YAML 1.1 and 1.2 read different numbers: 010 is 8 or 10.
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

// ambiguous is the message for a number that readers of YAML read differently.
func ambiguous(text string) string {
	return suggest.Quoted(text) + " is ambiguous: a leading 0 means octal to some YAML readers"
}

// resolve returns a plain scalar of a free map as a Go value: nil, bool, int64, uint64, float64 or string. An
// ambiguous number is an error whose text is for people.
func resolve(text string) (any, error) {
	if isNull(text) {
		return nil, nil
	}
	if b, ok := parseBool(text); ok {
		return b, nil
	}
	switch strings.ToLower(text) {
	case ".nan":
		return math.NaN(), nil
	case ".inf", "+.inf":
		return math.Inf(1), nil
	case "-.inf":
		return math.Inf(-1), nil
	}
	n, ok := parseNumber(text)
	switch {
	case !ok:
		return text, nil
	case n.octal:
		return nil, errors.New(ambiguous(text))
	}
	if i, err := strconv.ParseInt(n.digits, 0, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(n.digits, 0, 64); err == nil {
		return u, nil
	}
	f, err := strconv.ParseFloat(n.digits, 64)
	if err != nil {
		return text, nil
	}
	return f, nil
}
