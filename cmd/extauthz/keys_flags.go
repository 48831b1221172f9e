package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Values of flags that are more than text. Their errors say what was wanted.

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

// timeFlag reads a time: from now on in days or hours, or as the key file has it.
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
		return errors.New("want days such as 90d, hours such as 12h, a date such as 2026-12-31, or a time such as 2026-12-31T18:00:00Z")
	}
}

const (
	day     = 24 * time.Hour
	maxDays = 100_000 // which is for ever, and fits a time.Duration
)

// duration reads 90d, and what time.ParseDuration does; never less than none.
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

// limitFlags are the flags that make a limit.
type limitFlags struct {
	limit     string
	algorithm bucket.Algorithm
	burst     int64
}

func (l *limitFlags) register(f *pflag.FlagSet) {
	f.StringVar(&l.limit, "limit", "", "a limit of the key's own, as `100/minute` or 100/5minutes")
	f.Func("algorithm", "the `NAME` of the algorithm of --limit; default: that of the rule which the limit replaces",
		func(v string) error { return service.SetWord(&l.algorithm, v) })
	f.Int64Var(&l.burst, "burst", 0, "the burst `N` of --limit, for token_bucket and leaky_bucket")
}

// own is the limit that the flags say, nil for none.
func (l *limitFlags) own() (*ratelimit.LimitSpec, error) {
	if l.limit == "" {
		if l.algorithm != 0 || l.burst != 0 {
			return nil, errors.New("--algorithm and --burst go with --limit")
		}
		return nil, nil //nolint:nilnil // no limit is an answer
	}
	wrong := fmt.Errorf("--limit %q: want a number, a slash and a unit, such as 100/minute or 100/5minutes", l.limit)
	parts := regexp.MustCompile(`^([0-9]{1,12})/([0-9]{0,9})([a-z]+?)s?$`).FindStringSubmatch(l.limit)
	if parts == nil {
		return nil, wrong
	}
	own := ratelimit.LimitSpec{Algorithm: l.algorithm, Burst: l.burst}
	if own.Unit.UnmarshalText([]byte(parts[3])) != nil {
		return nil, wrong
	}
	own.Requests, _ = strconv.ParseInt(parts[1], 10, 64) // at most 12 digits
	if parts[2] != "" {
		times, err := strconv.ParseUint(parts[2], 10, 64)
		if err != nil || times == 0 {
			return nil, wrong
		}
		own.Multiplier = times
	}
	return &own, nil
}
