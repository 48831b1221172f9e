package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// rotate makes a new key with the id of an old one, which ends after the grace.
func (c *keyCommand) rotate(ctx context.Context, args []string) error {
	grace := day
	c.flags.Func("grace", "", func(v string) (err error) { grace, err = duration(v); return err })
	ids, err := c.parse(args, 1)
	if err != nil {
		return err
	}
	secret, err := c.settings.ServerSecret()
	if err != nil {
		return &usageError{err}
	}
	place, err := c.open()
	if err != nil {
		return err
	}
	defer place.Close()
	id, until := ids[0], c.now.Add(grace)
	key, err := apikey.NewKey(id)
	if err != nil {
		return &usageError{fmt.Errorf("%w; a weak key cannot be rotated", err)}
	}
	err = place.change(ctx, id, func(r *apikey.Record) error {
		if state := r.State(c.now); state == "disabled" || state == "expired" {
			return fmt.Errorf("the key is %s: create a new one", state)
		}
		r.Previous = &apikey.Previous{Hash: r.Hash, ValidUntil: until}
		r.Hash = secret.Hash(key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %s: %w", place, id, err)
	}
	fmt.Fprintf(c.stderr, "The key %s is a new one in %s; the one before it ends at %s. Keep what follows: it is not shown again.\n",
		id, place, until.Format(time.RFC3339))
	fmt.Fprintln(c.stdout, key)
	return nil
}

// revoke disables a key. Its record stays, so that the log says who still uses it.
func (c *keyCommand) revoke(ctx context.Context, args []string) error {
	ids, err := c.parse(args, 1)
	if err != nil {
		return err
	}
	place, err := c.open()
	if err != nil {
		return err
	}
	defer place.Close()
	id, already := ids[0], errors.New("it is revoked already")
	err = place.change(ctx, id, func(r *apikey.Record) error {
		if r.Disabled {
			return already
		}
		r.Disabled = true
		return nil
	})
	switch {
	case errors.Is(err, already):
		fmt.Fprintf(c.stderr, "The key %s in %s is revoked already.\n", id, place)
		return nil
	case err != nil:
		return fmt.Errorf("%s: %s: %w", place, id, err)
	}
	fmt.Fprintf(c.stderr, "The key %s in %s is revoked: it is refused within 2 seconds.\n", id, place)
	return nil
}
