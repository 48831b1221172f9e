package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

const keysUsage = `extauthz keys makes and changes API keys, in a file or in Redis. A running service sees a change within 2 seconds.

Usage:
  extauthz keys secret                      print a fresh server secret, for API_KEY_SECRET
  extauthz keys create --owner NAME [...]   make a key and print it, once; what is kept is its hash
  extauthz keys list [-o json]              list the keys; never a key or a hash
  extauthz keys rotate ID [--grace 24h]     make a new key in place of one, and print it; the old one ends after the grace
  extauthz keys revoke ID                   disable a key
  extauthz keys sign [--accept STATE]       sign the keys in Redis with a new API_KEY_SECRET, or as they are (extauthz keys list has the state)

Where the keys are:
  --file PATH          a file; default: API_KEYS_FILE
  --redis              the Redis of REDIS_URL; default when that is set and API_KEYS_FILE is not

Of create:
  --owner NAME         whose key it is
  --plan NAME          what the owner pays for
  --scope A,B          what the key may do
  --label NAME=VALUE   anything else about it; may be repeated
  --expires 90d        when it ends: days (90d), hours (12h), a date or a time (2026-12-31T18:00:00Z)
  --not-before DATE    when it begins, in the same words
  --limit 100/minute   a limit of its own, also 100/5minutes
  --algorithm NAME     how that counts; default: as the rule whose place it takes
  --burst 20           for token_bucket and leaky_bucket
  --weak NAME          keep a key of your own, read from standard input, under this id: for trying things out

Example:
  export API_KEY_SECRET=$(extauthz keys secret) API_KEYS_FILE=keys.yaml
  key=$(extauthz keys create --owner alice --plan pro --expires 90d)
`

// keyPlace is where keys are kept.
type keyPlace interface {
	// all returns the keys, those of a file in its order, and what `extauthz keys sign --accept` takes for them as they are, "" for
	// a file. With an error, the keys are those that can be read.
	all(ctx context.Context) (keys []placedKey, state string, err error)
	// add adds one with a new id.
	add(ctx context.Context, record apikey.Record) error
	// change replaces the one with this id by what change makes of it.
	change(ctx context.Context, id string, change func(*apikey.Record) error) error
	// String names the place for people.
	String() string
	Close() error
}

// placedKey is a key as it is kept.
type placedKey struct {
	apikey.Record
	// unsigned says that it is not signed, so that the service refuses it.
	unsigned bool
}

// keyCommand is one run of a subcommand of keys.
type keyCommand struct {
	flags          *flag.FlagSet
	stdin          io.Reader
	stdout, stderr io.Writer
	now            time.Time
	env            service.Environment
	settings       *service.Settings
	file           string
	redis          bool
}

// keysCommand runs a subcommand of keys. The key itself is all that it prints to stdout, so that a script can keep it.
func keysCommand(args []string, env service.Environment, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &keyCommand{env: env, stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now().UTC().Truncate(time.Second)}
	commands := map[string]func(context.Context, []string) error{
		"create": c.create, "list": c.list, "rotate": c.rotate, "revoke": c.revoke, "secret": c.secret,
		"sign": c.sign,
	}
	name := "--help"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	run, known := commands[name]
	switch {
	case name == "--help" || name == "-h" || name == "help":
		fmt.Fprint(stdout, keysUsage)
		return exitOK
	case !known:
		fmt.Fprintf(stderr, "extauthz: unknown subcommand %q of keys: want create, list, rotate, revoke, sign, secret or --help\n", name)
		return exitNoStart
	}
	c.flags = flag.NewFlagSet(name, flag.ContinueOnError)
	c.flags.SetOutput(io.Discard) // the error is enough
	c.flags.StringVar(&c.file, "file", "", "")
	c.flags.BoolVar(&c.redis, "redis", false, "")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, args)
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, keysUsage)
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "extauthz: keys %s: %v\n(extauthz keys --help lists all flags)\n", name, err)
		return exitNoStart
	}
	fmt.Fprintf(stderr, "extauthz: keys %s: %v\n", name, err)
	return exitFailed
}

// usageError is a mistake in the arguments or the environment.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// parse reads flags and that many arguments, in any order, and the environment.
func (c *keyCommand) parse(args []string, want int) (positional []string, err error) {
	for len(args) > 0 {
		if err := c.flags.Parse(args); err != nil {
			return nil, &usageError{err}
		}
		if args = c.flags.Args(); len(args) > 0 {
			positional, args = append(positional, args[0]), args[1:]
		}
	}
	for _, arg := range positional {
		if service.HasStartOfSecret(arg) {
			return nil, &usageError{errors.New("an argument looks like an API key, so it is not shown: want an id, as `extauthz keys list` shows it")}
		}
	}
	if len(positional) != want {
		if want == 0 {
			return nil, &usageError{fmt.Errorf("takes no arguments but flags, not %q", strings.Join(positional, " "))}
		}
		return nil, &usageError{errors.New("want one id, as `extauthz keys list` shows it")}
	}
	if c.settings, err = service.ReadSettings(c.env); err != nil {
		return nil, &usageError{fmt.Errorf("the environment has mistakes:\n%w", err)}
	}
	return positional, nil
}

// parseAndOpen is parse without arguments, and then open.
func (c *keyCommand) parseAndOpen(args []string) (keyPlace, error) {
	if _, err := c.parse(args, 0); err != nil {
		return nil, err
	}
	return c.open()
}

// open opens the place that the flags and settings name.
func (c *keyCommand) open() (keyPlace, error) {
	s := c.settings
	switch {
	case c.redis && c.file != "":
		return nil, &usageError{errors.New("--file and --redis: take one of them")}
	case c.redis && s.RedisURL == "":
		return nil, &usageError{errors.New("--redis needs REDIS_URL, such as redis://127.0.0.1:6379")}
	case c.file != "":
		return &keyFile{path: c.file}, nil
	case s.KeysFile != "" && !c.redis:
		return &keyFile{path: s.KeysFile}, nil
	case c.redis || s.BackendType == "redis":
		return openRedisKeys(s)
	}
	return nil, &usageError{errors.New("where are the keys? Say --file PATH or set API_KEYS_FILE, or say --redis and set REDIS_URL")}
}

// secret prints a fresh server secret.
func (c *keyCommand) secret(_ context.Context, args []string) error {
	if err := c.flags.Parse(args); err != nil {
		return &usageError{err}
	}
	secret, err := apikey.NewServerSecret()
	if err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, secret)
	return nil
}
