package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/internal/service"
)

// sign signs the keys in Redis with the current server secret, or, after a change that was not made by this program, in the state
// that the operator has looked at.
func (c *keyCommand) sign(ctx context.Context, args []string) error {
	var accept string
	c.flags.StringVar(&accept, "accept", "", "")
	place, err := c.parseAndOpen(args)
	if err != nil {
		return err
	}
	defer place.Close()
	shared, ok := place.(*redisKeys)
	if !ok {
		return &usageError{errors.New("only keys in Redis are signed: set REDIS_URL and add --redis")}
	}
	signed, removed, err := shared.store.Sign(ctx, accept)
	if err != nil {
		return fmt.Errorf("%s: %w", place, service.HowToSign(err))
	}
	if len(removed) > 0 {
		fmt.Fprintf(c.stderr, "Removed what could not be read, and weak keys that were not signed: %q\n", strings.Join(removed, " "))
	}
	fmt.Fprintf(c.stderr, "%s in %s: all are signed with the current API_KEY_SECRET.\n", counted(signed, "key"), place)
	return nil
}
