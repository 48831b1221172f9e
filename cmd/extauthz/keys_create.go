package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// create makes a key, keeps what is to be kept of it, and only then prints it.
func (c *keyCommand) create(ctx context.Context, args []string) error {
	record := apikey.Record{Created: c.now}
	var limit limitFlags
	var weak string
	f := c.flags
	f.StringVar(&record.Owner, "owner", "", "")
	f.StringVar(&record.Plan, "plan", "", "")
	f.Func("scope", "", func(v string) error { return addScopes(&record, v) })
	f.Func("label", "", func(v string) error { return addLabel(&record, v) })
	f.Func("expires", "", c.timeFlag(&record.Expires))
	f.Func("not-before", "", c.timeFlag(&record.NotBefore))
	f.StringVar(&weak, "weak", "", "")
	limit.register(f)
	if _, err := c.parse(args, 0); err != nil {
		return err
	}
	var err error
	if record.Limit, err = limit.own(); err != nil {
		return &usageError{err}
	}
	switch {
	case record.Owner == "":
		return &usageError{errors.New("whose key is it? Say --owner NAME")}
	case !record.Expires.IsZero() && !record.Expires.After(c.now):
		return &usageError{errors.New("--expires: want a time to come")}
	}
	place, err := c.open()
	if err != nil {
		return err
	}
	defer place.Close()
	secret, err := c.settings.ServerSecret()
	if err != nil {
		return &usageError{err}
	}
	key, err := c.newKey(&record, weak)
	if err != nil {
		return err
	}
	record.Hash = secret.Hash(key)
	if err := record.Check(); err != nil {
		return &usageError{err}
	}
	if err := place.add(ctx, record); err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	if record.Weak {
		fmt.Fprintf(c.stderr, "The weak key %s of %s is in %s. Whoever guesses it has it.\n", record.ID, record.Owner, place)
		return nil
	}
	fmt.Fprintf(c.stderr, "The key %s of %s is in %s. Keep what follows: it is not shown again.\n", record.ID, record.Owner, place)
	fmt.Fprintln(c.stdout, key)
	return nil
}

// newKey gives a record its id, and returns the key: a random one, or a weak one from standard input.
func (c *keyCommand) newKey(record *apikey.Record, weak string) (key string, err error) {
	if weak != "" {
		record.ID, record.Weak = weak, true
		line, _ := bufio.NewReader(c.stdin).ReadString('\n')
		key = strings.TrimRight(line, "\r\n")
		if err := apikey.CheckWeak(key); err != nil {
			return "", &usageError{fmt.Errorf("the key on standard input: %w", err)}
		}
		return key, nil
	}
	if record.ID, err = apikey.NewID(); err != nil {
		return "", err
	}
	return apikey.NewKey(record.ID)
}
