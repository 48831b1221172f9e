package rulefile

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// keyText is a record as the file has it: `key: value` each, with a separator between them that makes a block or a flow of it.
func keyText(r apikey.Record, separator string) string {
	pairs := []string{"id: " + yamlText(r.ID), "hash: " + r.Hash.String(), "owner: " + yamlText(r.Owner)}
	add := func(is bool, name, text string) {
		if is {
			pairs = append(pairs, name+": "+text)
		}
	}
	add(r.Plan != "", "plan", yamlText(r.Plan))
	add(len(r.Labels) > 0, "labels", labelsText(r.Labels))
	add(len(r.Scopes) > 0, "scopes", scopesText(r.Scopes))
	add(!r.NotBefore.IsZero(), "not_before", timeText(r.NotBefore))
	add(!r.Expires.IsZero(), "expires", timeText(r.Expires))
	add(r.Disabled, "disabled", "true")
	add(r.Weak, "weak", "true")
	if r.Limit != nil {
		add(true, "limit", limitText(*r.Limit))
	}
	if r.Previous != nil {
		add(true, "previous", previousText(*r.Previous))
	}
	add(!r.Created.IsZero(), "created", timeText(r.Created))
	return strings.Join(pairs, separator)
}

func previousText(p apikey.Previous) string {
	return "{hash: " + p.Hash.String() + ", valid_until: " + timeText(p.ValidUntil) + "}"
}

func labelsText(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, yamlText(name)+": "+yamlText(labels[name]))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

func scopesText(scopes []string) string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = yamlText(scope)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func limitText(l ratelimit.LimitSpec) string {
	text := "{requests_per_unit: " + strconv.FormatInt(l.Requests, 10) + ", unit: " + l.Unit.String()
	if l.Multiplier > 1 {
		text += ", unit_multiplier: " + strconv.FormatUint(l.Multiplier, 10)
	}
	if l.Algorithm != 0 {
		text += ", algorithm: " + l.Algorithm.String()
	}
	if l.Burst != 0 {
		text += ", burst: " + strconv.FormatInt(l.Burst, 10)
	}
	return text + "}"
}

// timeText is a time as the file has it, a date when it is the first moment of one.
func timeText(t time.Time) string {
	t = t.UTC()
	if t.Equal(t.Truncate(24 * time.Hour)) {
		return t.Format(time.DateOnly)
	}
	return t.Format(time.RFC3339Nano)
}

// yamlText is a text as YAML: plain when every reader takes it for a text, else in double quotes as JSON has them, which YAML
// has as well.
func yamlText(text string) string {
	_, isBool := parseBool(text)
	_, isNumber := parseNumber(text)
	first := strings.Trim(text[:min(1, len(text))], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
	plain := strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./@+-") == ""
	if first && plain && !isBool && !isNumber && !isNull(text) {
		return text
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return strconv.Quote(text) // a string always marshals
	}
	return string(quoted)
}
