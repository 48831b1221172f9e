package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/suggest"
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

// rotate returns the command that makes a new key with the id of an old one. The old key ends after the grace period.
func (k *keyCommand) rotate() *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace a key by a new one with the same id, and print the new key",
		Long: "extauthz keys rotate makes a new key with the id of an old one, and prints it once.\n" +
			"The old key stays valid for the time of --grace. Until then, a second rotation needs --end-previous.",
		Example: "  extauthz keys rotate 4Gd0kZ7b --grace 7d",
		Args:    oneID,
	}
	grace := command.Day
	c.Flags().Func("grace", "how long the old key stays valid: a `duration` in days (7d) or hours (24h; the default)",
		func(v string) (err error) {
			grace, err = command.Duration(v)
			return err
		})
	endPrevious := c.Flags().Bool("end-previous", false, "rotate a key that was rotated within the grace; the key "+
		"before it ends at once")
	c.RunE = k.withPlace(func(ctx context.Context, s *settings.Settings, place keyPlace, args []string) error {
		secret, err := service.ServerSecret(s.Keys)
		if err != nil {
			return err
		}
		id, until := args[0], k.now.Add(grace)
		key, err := apikey.NewKey(id)
		if err != nil {
			return command.Usage("%w; a weak key cannot be rotated", err)
		}
		var record apikey.Record
		err = place.Change(ctx, id, func(r *apikey.Record) error {
			if state := r.State(k.now); state == "disabled" || state == "expired" {
				return fmt.Errorf("the key is %s: create a new one", state)
			}
			if p := r.Previous; p != nil && k.now.Before(p.ValidUntil) && !*endPrevious {
				return fmt.Errorf("the previous key is valid until %s, and would end at once: wait until then, or add "+
					"--end-previous", p.ValidUntil.Format(time.RFC3339))
			}
			r.Previous = &apikey.Previous{Hash: r.Hash, ValidUntil: until}
			r.Hash = secret.Hash(key)
			record = *r
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %s: %w", place, id, service.HowToSign(err))
		}
		return k.printKey(record, key, fmt.Sprintf("The key %s has a new value in %s; the previous value is valid until "+
			"%s. Store the key that follows: it is not shown again.", id, place, until.Format(time.RFC3339)))
	})
	return c
}

// revoke returns the command that disables a key. The record stays, so that the log names the owner of a used key.
func (k *keyCommand) revoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Disable a key; its record stays",
		Example: "  extauthz keys revoke 4Gd0kZ7b",
		Args:    oneID,
		RunE: k.withPlace(func(ctx context.Context, _ *settings.Settings, place keyPlace, args []string) error {
			id, already := args[0], errors.New("it is revoked already")
			var record apikey.Record
			err := place.Change(ctx, id, func(r *apikey.Record) error {
				if record = *r; r.Disabled {
					return already
				}
				r.Disabled, record.Disabled = true, true
				return nil
			})
			switch {
			case errors.Is(err, already):
				return k.printKey(record, "", fmt.Sprintf("The key %s in %s is already revoked.", id, place))
			case err != nil:
				return fmt.Errorf("%s: %s: %w", place, id, service.HowToSign(err))
			}
			return k.printKey(record, "", fmt.Sprintf("The key %s in %s is revoked: each service refuses it within 2 seconds.",
				id, place))
		}),
	}
}

// sign returns the command that signs the keys in Redis with the current server secret. After a change by another
// program it signs the state that the operator has checked.
func (k *keyCommand) sign() *cobra.Command {
	c := &cobra.Command{
		Use:   "sign",
		Short: "Sign the keys in Redis again: with a new API_KEY_SECRET, or after a change by another program",
		Example: "  extauthz keys sign\n" +
			"  extauthz keys sign --accept 0123456789abcdef0123456789abcdef",
		Args: noIDs,
	}
	accept := c.Flags().String("accept", "", "sign the keys as they are, if their state is still this `STATE`, as shown "+
		"by extauthz keys list")
	c.RunE = k.withPlace(func(ctx context.Context, _ *settings.Settings, place keyPlace, _ []string) error {
		shared, ok := place.(*redisKeys)
		if !ok {
			return command.Usage("only keys in Redis are signed: set REDIS_URL and add --redis")
		}
		signed, removed, err := shared.Sign(ctx, *accept)
		if err != nil {
			return fmt.Errorf("%s: %w", place, service.HowToSign(err))
		}
		if k.output.Word == "json" {
			return command.PrintJSON(k.Stdout, struct {
				Signed  int      `json:"signed"`
				Removed []string `json:"removed,omitempty"`
			}{signed, removed})
		}
		if len(removed) > 0 {
			fmt.Fprintf(k.Stderr, "Removed records that could not be read, and weak keys that were not signed: %q\n",
				strings.Join(removed, " "))
		}
		fmt.Fprintf(k.Stderr, "%s in %s: all are signed with the current API_KEY_SECRET.\n", suggest.Counted(signed, "key"),
			place)
		return nil
	})
	return c
}
