package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// keyPlace stores keys: a file or Redis.
type keyPlace interface {
	// all returns the keys, in the order of the file. With an error it returns the keys that can be read.
	all(ctx context.Context) (rediskeys.Copy, error)
	// Add adds all keys, or none if an id is taken.
	Add(ctx context.Context, records ...apikey.Record) error
	// Change applies change to the key with this id and stores the result.
	Change(ctx context.Context, id string, change func(*apikey.Record) error) error
	// String returns the name of the place for messages.
	String() string
	Close() error
}

type keyCommand struct {
	*program
	now    time.Time
	output *command.Format
	file   string
	redis  bool
}

// keys returns the command of API keys. Its text output to stdout is only the key, so that a script can use it.
func (p *program) keys() *cobra.Command {
	k := &keyCommand{program: p, now: time.Now().UTC().Truncate(time.Second)}
	c := command.Group(&cobra.Command{
		Use:   "keys",
		Short: "Create, list, rotate and revoke API keys",
		Long: "extauthz keys creates and changes API keys, in a file or in Redis.\n" +
			"A running service applies each change within 2 seconds.",
		Example: `  export API_KEY_SECRET=$(extauthz keys secret) API_KEYS_FILE=keys.jsonl
  key=$(extauthz keys create --owner alice --plan pro --expires 90d)`,
	}, k.secret(), k.create(), k.list(), k.rotate(), k.revoke(), k.sign())
	k.output = command.OutputFlag(c, "text", "json")
	c.PersistentFlags().StringVar(&k.file, "file", "", "the keys are in the file `PATH`; default: API_KEYS_FILE")
	c.PersistentFlags().BoolVar(&k.redis, "redis", false,
		"the keys are in the Redis of REDIS_URL; default if that is set and API_KEYS_FILE is not")
	return c
}

// withPlace returns the RunE of a command that reads or changes the keys in a place.
func (k *keyCommand) withPlace(
	run func(ctx context.Context, s *settings.Settings, place keyPlace, args []string) error,
) func(*cobra.Command, []string) error {
	return k.withSettings(func(ctx context.Context, s *settings.Settings, args []string) error {
		place, err := k.open(s)
		if err != nil {
			return err
		}
		defer place.Close()
		return run(ctx, s, place, args)
	})
}

// noKey refuses arguments that look like a key, without showing them.
func noKey(_ *cobra.Command, args []string) error {
	if slices.ContainsFunc(args, settings.HasStartOfSecret) {
		return command.Usage("an argument looks like an API key, so it is not shown: " +
			"want an id, as `extauthz keys list` shows it")
	}
	return nil
}

// oneID accepts one argument, the id of a key; noIDs accepts none.
var (
	oneID = cobra.MatchAll(noKey, command.Wants(cobra.ExactArgs(1), "one id, as `extauthz keys list` shows it"))
	noIDs = cobra.MatchAll(noKey, command.NoArguments(""))
)

// open opens the place that the flags and settings name.
func (k *keyCommand) open(s *settings.Settings) (keyPlace, error) {
	switch {
	case k.redis && k.file != "":
		return nil, command.Usage("--file and --redis: take one of them")
	case k.redis && s.Redis.Main.URL == "":
		return nil, command.Usage("--redis needs REDIS_URL, such as redis://127.0.0.1:6379")
	case k.file != "":
		return keyFile(k.file), nil
	case s.Keys.File != "" && !k.redis:
		return keyFile(s.Keys.File), nil
	case k.redis || s.UsesRedis():
		return openRedisKeys(s)
	}
	return nil, command.Usage("missing place of the keys: add --file PATH or set API_KEYS_FILE, or add --redis and set " +
		"REDIS_URL")
}

func (k *keyCommand) secret() *cobra.Command {
	return &cobra.Command{
		Use:   "secret",
		Short: "Print a new server secret for API_KEY_SECRET",
		Args:  noIDs,
		RunE: func(*cobra.Command, []string) error {
			secret := apikey.NewServerSecret()
			return k.output.Print(k.Stdout, map[string]string{"secret": secret}, func() error {
				_, err := fmt.Fprintln(k.Stdout, secret)
				return err
			})
		},
	}
}

// printKey prints a new key, "" for none, and a note to stderr. With -o json it prints the record and the key.
func (k *keyCommand) printKey(record apikey.Record, key, note string) error {
	if k.output.Word == "json" {
		return command.PrintJSON(k.Stdout, madeKey{k.listed(record), key})
	}
	fmt.Fprintln(k.Stderr, note)
	if key == "" {
		return nil
	}
	_, err := fmt.Fprintln(k.Stdout, key)
	return err
}

type madeKey struct {
	listedKey
	Key string `json:"key,omitempty"` // shown only once
}

// keyFile is the path of a file of keys.
type keyFile string

func (f keyFile) String() string { return string(f) }
func (f keyFile) Close() error   { return nil }

func (f keyFile) all(context.Context) (rediskeys.Copy, error) {
	records, err := keyfile.Load(string(f))
	return rediskeys.Copy{Records: records}, err
}

func (f keyFile) Add(_ context.Context, records ...apikey.Record) error {
	return keyfile.Add(string(f), records...)
}

func (f keyFile) Change(_ context.Context, id string, change func(*apikey.Record) error) error {
	return keyfile.Change(string(f), id, change)
}

// redisKeys are the keys in Redis.
type redisKeys struct{ *rediskeys.Store }

func openRedisKeys(s *settings.Settings) (*redisKeys, error) {
	secret, err := service.ServerSecret(s.Keys)
	if err != nil {
		return nil, err
	}
	redisstore.Log(slog.New(slog.DiscardHandler)) // the command prints its error
	store, err := service.RedisForKeys(s, secret)
	return &redisKeys{store}, err
}

func (r *redisKeys) String() string { return "Redis" }

func (r *redisKeys) all(ctx context.Context) (rediskeys.Copy, error) {
	keys, err := r.Load(ctx)
	for _, refused := range keys.Refused {
		err = errors.Join(err, refused.Err)
	}
	if state := keys.State(); err != nil && state != "" {
		err = fmt.Errorf("%w\n  A program other than `extauthz keys` has written to Redis. "+
			"Check each owner, plan, scope, label, limit\n"+
			"  and state above. The list cannot show whether an unsigned key is the one that its owner has: rotate it\n"+
			"  afterwards if another key with the same id has ever leaked. "+
			"If all are right, this command signs the keys as they\n"+
			"  are, except weak keys that are not signed:\n"+
			"  extauthz keys sign --accept %s", err, state)
	}
	return keys, err
}
