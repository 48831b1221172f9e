package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
)

// importYAML returns the command that adds the keys of a YAML file.
func (k *keyCommand) importYAML() *cobra.Command {
	c := &cobra.Command{
		Use:   "import FILE.yaml",
		Short: "Add the keys of a YAML file, the previous format of key files",
		Long: "extauthz keys import adds all keys of a YAML file, the previous format of key files.\n" +
			"If one of the ids is taken, it adds none.",
		Example: "  extauthz keys import keys.yaml --file keys.jsonl --dry-run",
		Args:    cobra.MatchAll(noKey("one YAML file"), wants(cobra.ExactArgs(1), "one YAML file")),
	}
	dry := c.Flags().Bool("dry-run", false, "check the keys without adding them")
	c.RunE = k.withPlace(func(ctx context.Context, _ *service.Settings, place keyPlace, args []string) error {
		content, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		keys, problems := keyfile.ParseYAML(strictyaml.File{Name: args[0], Content: content})
		if err := problems.Err(); err != nil {
			return fmt.Errorf("%s has mistakes:\n%w", args[0], err)
		}
		if len(problems) > 0 {
			fmt.Fprintln(k.stderr, problems)
		}
		add, done := place.add, "added to"
		if *dry {
			add, done = k.wouldAdd(place), "can be added to"
		}
		if err := add(ctx, keys...); err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		if k.output.word == "json" {
			return printJSON(k.stdout, k.listedKeys(rediskeys.Copy{Records: keys}))
		}
		fmt.Fprintf(k.stderr, "%s of %s %s %s.\n", suggest.Counted(len(keys), "key"), args[0], done, place)
		return nil
	})
	return c
}

// wouldAdd returns a function that fails if the id of a key is taken. It adds nothing.
func (k *keyCommand) wouldAdd(place keyPlace) func(context.Context, ...apikey.Record) error {
	return func(ctx context.Context, keys ...apikey.Record) error {
		present, err := place.all(ctx)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		taken := make(map[string]bool, len(present.Records))
		for _, key := range present.Records {
			taken[key.ID] = true
		}
		for _, key := range keys {
			if taken[key.ID] {
				return fmt.Errorf("there is a key with the id %q already", key.ID)
			}
		}
		return nil
	}
}
