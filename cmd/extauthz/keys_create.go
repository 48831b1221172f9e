package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

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
	var weak string
	f := c.Flags()
	limit := command.AddRecordFlags(f, &record, k.now)
	f.StringVar(&weak, "weak", "", "read the key from standard input and give it the id `NAME`: only for trials, "+
		"because it can be guessed")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case record.Limit == nil && *limit != ratelimit.LimitSpec{}:
			return command.Usage("--algorithm, --burst and --calendar need --limit")
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
