package main

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Values of flags that are more than text. Their errors name the wanted form.

func addLabel(record *apikey.Record, pair string) error {
	name, value, ok := strings.Cut(pair, "=")
	if !ok {
		return errors.New("want NAME=VALUE")
	}
	if record.Labels == nil {
		record.Labels = map[string]string{}
	}
	record.Labels[name] = value
	return nil
}

// timeFlag returns the setter of a time: days or hours from now, a date, or a time in RFC 3339.
func (k *keyCommand) timeFlag(into *time.Time) func(string) error {
	return func(v string) error {
		if d, err := duration(v); err == nil {
			*into = k.now.Add(d)
			return nil
		}
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if t, err := time.Parse(layout, v); err == nil {
				*into = t.UTC()
				return nil
			}
		}
		return errors.New("want days such as 90d, hours such as 12h, a date such as 2026-12-31, or a time such as " +
			"2026-12-31T18:00:00Z")
	}
}

const (
	day     = 24 * time.Hour
	maxDays = 100_000 // 273 years, which fit a time.Duration
)

// duration reads days, such as 90d, or a time.Duration. It refuses negative values.
func duration(v string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > maxDays {
			return 0, errors.New("want days such as 90d")
		}
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, errors.New("want a duration such as 24h or 7d")
	}
	return d, nil
}

// limitPattern is a limit such as 100/minute or 100/5minutes.
var limitPattern = regexp.MustCompile(`^([0-9]{1,12})/([0-9]{0,9})([a-z]+?)s?$`)

// setLimit reads the requests and the window of a limit.
func setLimit(spec *ratelimit.LimitSpec, v string) error {
	wrong := errors.New("want a number, a slash and a unit, such as 100/minute or 100/5minutes")
	parts := limitPattern.FindStringSubmatch(v)
	if parts == nil || spec.Unit.UnmarshalText([]byte(parts[3])) != nil {
		return wrong
	}
	spec.Requests, _ = strconv.ParseInt(parts[1], 10, 64)    // at most 12 digits
	spec.Multiplier, _ = strconv.ParseUint(parts[2], 10, 64) // at most 9 digits, 0 for none
	if parts[2] != "" && spec.Multiplier == 0 {
		return wrong
	}
	return nil
}
