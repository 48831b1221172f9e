package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/suggest"
)

// sign signs the keys in Redis with the current server secret, or, after a change that was not made by this program, in the state
// that the operator has looked at.
func (k *keyCommand) sign() *cobra.Command {
	c := &cobra.Command{
		Use:   "sign",
		Short: "Sign the keys in Redis with a new API_KEY_SECRET, or as they are",
		Example: "  extauthz keys sign\n" +
			"  extauthz keys sign --accept 0123456789abcdef0123456789abcdef",
		Args: noIDs,
	}
	accept := c.Flags().String("accept", "", "sign the keys as they are, if their state is still this `STATE`, which `extauthz keys list` shows")
	c.RunE = k.withPlace(func(ctx context.Context, _ *service.Settings, place keyPlace, _ []string) error {
		shared, ok := place.(*redisKeys)
		if !ok {
			return usage("only keys in Redis are signed: set REDIS_URL and add --redis")
		}
		signed, removed, err := shared.store.Sign(ctx, *accept)
		if err != nil {
			return fmt.Errorf("%s: %w", place, service.HowToSign(err))
		}
		if k.output.word == "json" {
			return printJSON(k.stdout, struct {
				Signed  int      `json:"signed"`
				Removed []string `json:"removed,omitempty"`
			}{signed, removed})
		}
		if len(removed) > 0 {
			fmt.Fprintf(k.stderr, "Removed what could not be read, and weak keys that were not signed: %q\n", strings.Join(removed, " "))
		}
		fmt.Fprintf(k.stderr, "%s in %s: all are signed with the current API_KEY_SECRET.\n", suggest.Counted(signed, "key"), place)
		return nil
	})
	return c
}
