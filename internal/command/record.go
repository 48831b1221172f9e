package command

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// AddRecordFlags adds the flags that describe an API key, and sets the fields of its record. Times are relative to now.
// The result is the limit that the flags describe. It is that of the record once --limit is set.
func AddRecordFlags(f *pflag.FlagSet, record *apikey.Record, now time.Time) *ratelimit.LimitSpec {
	limit := new(ratelimit.LimitSpec)
	f.StringVar(&record.Owner, "owner", "", "the `NAME` of the key's owner")
	f.StringVar(&record.Plan, "plan", "", "the `NAME` of the owner's plan, such as pro")
	f.Func("scope", "scopes of the key, as `A,B`; may be repeated", func(v string) error {
		record.Scopes = append(record.Scopes, strings.Split(v, ",")...)
		return nil
	})
	f.Func("label", "label of the key, as `NAME=VALUE`; may be repeated", func(v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("want NAME=VALUE")
		}
		if record.Labels == nil {
			record.Labels = map[string]string{}
		}
		record.Labels[name] = value
		return nil
	})
	f.Func("expires", "the `TIME` at which the key ends: days (90d) or hours (12h) from now, a date, or "+
		"2026-12-31T18:00:00Z", timeFlag(now, &record.Expires))
	f.Func("not-before", "the `TIME` at which the key becomes valid, in the forms of --expires",
		timeFlag(now, &record.NotBefore))
	f.Func("limit", "limit of this key only, as `100/minute` or 100/5minutes", func(v string) error {
		record.Limit = limit
		return setLimit(limit, v)
	})
	f.Func("algorithm", "the `NAME` of the algorithm of --limit, unless the override of the rule names one; "+
		"default: that of the rule whose limit --limit replaces",
		func(v string) error { return settings.SetWord(&limit.Algorithm, v) })
	f.StringVar(&limit.Calendar, "calendar", "", "the time `ZONE` in which the day, week, month or year of --limit "+
		"begins, such as Europe/Berlin; default: that of the rule")
	f.Int64Var(&limit.Burst, "burst", 0, "the burst `N` of --limit, for token_bucket and leaky_bucket")
	return limit
}

// timeFlag returns the setter of a time: days or hours from now, a date, or a time in RFC 3339.
func timeFlag(now time.Time, into *time.Time) func(string) error {
	return func(v string) error {
		if d, err := Duration(v); err == nil {
			*into = now.Add(d)
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

// Day is a day of 24 hours.
const Day = 24 * time.Hour

const maxDays = 100_000 // 273 years, which fit a time.Duration

// Duration reads days, such as 90d, or a time.Duration. It refuses negative values.
func Duration(v string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > maxDays {
			return 0, errors.New("want days such as 90d")
		}
		return time.Duration(n) * Day, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, errors.New("want a duration such as 24h or 7d")
	}
	return d, nil
}

// limitPattern is a limit such as 100/minute or 100/5minutes.
var limitPattern = regexp.MustCompile(`^([0-9]{1,18})/(0*[1-9][0-9]{0,8})?([a-z]+?)s?$`)

func setLimit(spec *ratelimit.LimitSpec, v string) error {
	parts := limitPattern.FindStringSubmatch(v)
	if parts == nil || spec.Unit.UnmarshalText([]byte(parts[3])) != nil {
		return errors.New("want a number, a slash and a unit, such as 100/minute or 100/5minutes")
	}
	spec.Requests, _ = strconv.ParseInt(parts[1], 10, 64)    // at most 18 digits
	spec.Multiplier, _ = strconv.ParseUint(parts[2], 10, 64) // at most 9 digits, 0 for none
	return nil
}
