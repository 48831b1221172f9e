package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// create makes a key, keeps what is to be kept of it, and only then prints it.
func (k *keyCommand) create() *cobra.Command {
	c := &cobra.Command{
		Use:   "create --owner NAME",
		Short: "Make a key and print it, once",
		Long:  "extauthz keys create makes a key and prints it, once. Only its hash is kept.",
		Example: "  extauthz keys create --owner alice --plan pro --expires 90d\n" +
			"  extauthz keys create --owner bob --limit 100/minute --algorithm token_bucket --burst 200",
		Args: noIDs,
	}
	record := apikey.Record{Created: k.now}
	var limit ratelimit.LimitSpec
	var weak string
	f := c.Flags()
	f.StringVar(&record.Owner, "owner", "", "the `NAME` of the key's owner")
	f.StringVar(&record.Plan, "plan", "", "the `NAME` of what the owner pays for")
	f.Func("scope", "what the key may do, as `A,B`; may be repeated", func(v string) error {
		record.Scopes = append(record.Scopes, strings.Split(v, ",")...)
		return nil
	})
	f.Func("label", "any other fact about the key, as `NAME=VALUE`; may be repeated",
		func(v string) error { return addLabel(&record, v) })
	f.Func("expires", "when the key ends: in days (90d) or hours (12h), at a date, or at a `TIME` (2026-12-31T18:00:00Z)",
		k.timeFlag(&record.Expires))
	f.Func("not-before", "when the key begins: a `TIME` in the forms of --expires", k.timeFlag(&record.NotBefore))
	f.StringVar(&weak, "weak", "", "keep a key of your own, read from standard input, under the id `NAME`: for trying "+
		"things out")
	f.Func("limit", "a limit of the key's own, as `100/minute` or 100/5minutes", func(v string) error {
		record.Limit = &limit
		return setLimit(&limit, v)
	})
	f.Func("algorithm", "the `NAME` of the algorithm of --limit; default: that of the rule which the limit replaces",
		func(v string) error { return service.SetWord(&limit.Algorithm, v) })
	f.Int64Var(&limit.Burst, "burst", 0, "the burst `N` of --limit, for token_bucket and leaky_bucket")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case record.Limit == nil && limit != ratelimit.LimitSpec{}:
			return usage("--algorithm and --burst go with --limit")
		case record.Owner == "":
			return usage("missing --owner NAME")
		case !record.Expires.IsZero() && !record.Expires.After(k.now):
			return usage("--expires must be in the future")
		}
		return nil
	}
	c.RunE = k.withPlace(func(ctx context.Context, s *service.Settings, place keyPlace, _ []string) error {
		secret, err := s.ServerSecret()
		if err != nil {
			return &startError{error: err}
		}
		key, err := k.newKey(&record, weak)
		if err != nil {
			return err
		}
		record.Hash = secret.Hash(key)
		if err := record.Err(); err != nil {
			return usage("%w", err)
		}
		if err := place.add(ctx, record); err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		if record.Weak {
			return k.printKey(record, "", fmt.Sprintf("The weak key %s of %s is in %s. Everyone who guesses it can use it.",
				record.ID, record.Owner, place))
		}
		return k.printKey(record, key, fmt.Sprintf("The key %s of %s is in %s. Keep what follows: it is not shown again.",
			record.ID, record.Owner, place))
	})
	return c
}

// newKey gives a record its id, and returns the key: a random one, or a weak one from standard input.
func (k *keyCommand) newKey(record *apikey.Record, weak string) (key string, err error) {
	if weak != "" {
		record.ID, record.Weak = weak, true
		line, _ := bufio.NewReader(k.stdin).ReadString('\n')
		key = strings.TrimRight(line, "\r\n")
		if err := apikey.CheckWeak(key); err != nil {
			return "", usage("the key on standard input: %w", err)
		}
		return key, nil
	}
	record.ID = apikey.NewID()
	return apikey.NewKey(record.ID)
}
