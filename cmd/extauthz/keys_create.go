package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// create returns the command that makes a key. It stores the record before it prints the key.
func (k *keyCommand) create() *cobra.Command {
	c := &cobra.Command{
		Use:   "create --owner NAME",
		Short: "Create a key and print it once",
		Long:  "extauthz keys create creates a key and prints it once. Only the hash of the key is stored.",
		Example: "  extauthz keys create --owner alice --plan pro --expires 90d\n" +
			"  extauthz keys create --owner bob --limit 100/minute --algorithm token_bucket --burst 200",
		Args: noIDs,
	}
	record := apikey.Record{Created: k.now}
	var limit ratelimit.LimitSpec
	var weak string
	f := c.Flags()
	f.StringVar(&record.Owner, "owner", "", "the `NAME` of the key's owner")
	f.StringVar(&record.Plan, "plan", "", "the `NAME` of the owner's plan, such as pro")
	f.Func("scope", "scopes of the key, as `A,B`; may be repeated", func(v string) error {
		record.Scopes = append(record.Scopes, strings.Split(v, ",")...)
		return nil
	})
	f.Func("label", "label of the key, as `NAME=VALUE`; may be repeated",
		func(v string) error { return addLabel(&record, v) })
	f.Func("expires", "the `TIME` at which the key ends: days (90d) or hours (12h) from now, a date, or "+
		"2026-12-31T18:00:00Z", k.timeFlag(&record.Expires))
	f.Func("not-before", "the `TIME` at which the key becomes valid, in the forms of --expires",
		k.timeFlag(&record.NotBefore))
	f.StringVar(&weak, "weak", "", "read the key from standard input and give it the id `NAME`: only for trials, "+
		"because it can be guessed")
	f.Func("limit", "limit of this key only, as `100/minute` or 100/5minutes", func(v string) error {
		record.Limit = &limit
		return setLimit(&limit, v)
	})
	f.Func("algorithm", "the `NAME` of the algorithm of --limit, unless the override of the rule names one; "+
		"default: that of the rule whose limit --limit replaces",
		func(v string) error { return settings.SetWord(&limit.Algorithm, v) })
	f.Int64Var(&limit.Burst, "burst", 0, "the burst `N` of --limit, for token_bucket and leaky_bucket")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case record.Limit == nil && limit != ratelimit.LimitSpec{}:
			return command.Usage("--algorithm and --burst need --limit")
		case record.Owner == "":
			return command.Usage("missing --owner NAME")
		case !record.Expires.IsZero() && !record.Expires.After(k.now):
			return command.Usage("--expires must be in the future")
		}
		return nil
	}
	c.RunE = k.withPlace(func(ctx context.Context, s *settings.Settings, place keyPlace, _ []string) error {
		secret, err := service.ServerSecret(s.Keys)
		if err != nil {
			return err
		}
		key, err := k.newKey(&record, weak)
		if err != nil {
			return err
		}
		record.Hash = secret.Hash(key)
		if err := record.Err(); err != nil {
			return command.Usage("%w", err)
		}
		if err := place.Add(ctx, record); err != nil {
			return fmt.Errorf("%s: %w", place, service.HowToSign(err))
		}
		if record.Weak {
			return k.printKey(record, "", fmt.Sprintf("The weak key %s of %s is in %s. A client that guesses it can use it.",
				record.ID, record.Owner, place))
		}
		return k.printKey(record, key, fmt.Sprintf("The key %s of %s is in %s. Store the key that follows: it is not shown "+
			"again.", record.ID, record.Owner, place))
	})
	return c
}

// newKey sets the id of a record and returns its key: a random key, or a weak key from standard input.
func (k *keyCommand) newKey(record *apikey.Record, weak string) (key string, err error) {
	if weak != "" {
		record.ID, record.Weak = weak, true
		line, _ := bufio.NewReader(k.Stdin).ReadString('\n')
		key = strings.TrimRight(line, "\r\n")
		if err := apikey.CheckWeak(key); err != nil {
			return "", command.Usage("the key on standard input: %w", err)
		}
		return key, nil
	}
	record.ID = apikey.NewID()
	return apikey.NewKey(record.ID)
}

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
