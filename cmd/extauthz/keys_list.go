package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

func (k *keyCommand) list() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List ids, owners, plans, states and limits of all keys, but no key or hash",
		Example: "  extauthz keys list -o json",
		Args:    noIDs,
		RunE: k.withPlace(func(ctx context.Context, _ *settings.Settings, place keyPlace, _ []string) error {
			keys, found := place.all(ctx)
			list := k.listedKeys(keys)
			if found != nil {
				found = fmt.Errorf("%s: %w", place, found)
				if len(list) == 0 {
					return found
				}
			}
			err := k.output.Print(k.Stdout, list, func() error { return k.listTable(list) })
			if state := keys.State(); state != "" {
				fmt.Fprintf(k.Stderr, "State of the keys in %s: %s\n", place, state)
			}
			return errors.Join(err, found)
		}),
	}
}

func (k *keyCommand) listTable(list []listedKey) error {
	rows := [][]string{{"ID", "OWNER", "PLAN", "STATE", "EXPIRES", "LIMIT", "SCOPES", "LABELS"}}
	for _, r := range list {
		columns := []string{r.ID, r.Owner, r.Plan, k.state(r), shortTime(r.Expires), r.Limit, strings.Join(r.Scopes, ","),
			labels(r.Labels)}
		for i, column := range columns {
			columns[i] = cmp.Or(column, "-")
		}
		rows = append(rows, columns)
	}
	return command.PrintTable(k.Stdout, k.Width, rows)
}

// state returns the state of a key, with a warning if it is weak, unsigned or being rotated.
func (k *keyCommand) state(r listedKey) string {
	state := r.State
	switch {
	case r.Unsigned && r.Weak:
		state += ", weak, not signed (never trusted: create it again)"
	case r.Unsigned:
		state += ", not signed"
	case r.Weak:
		state += ", weak"
	}
	if k.now.Before(r.PreviousUntil) {
		state += ", rotating until " + shortTime(r.PreviousUntil)
	}
	return state
}

// labels returns labels in the form of --label, quoted if they would be ambiguous.
func labels(m map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		label := name + "=" + m[name]
		if strings.ContainsAny(name, "=, \"") || strings.ContainsAny(m[name], ", \"") {
			label = strconv.Quote(label)
		}
		list = append(list, label)
	}
	return strings.Join(list, ",")
}

func shortTime(t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case t.Equal(t.Truncate(command.Day)):
		return t.Format(time.DateOnly)
	}
	return t.Format(time.RFC3339)
}

// limitName returns a limit in the form of --limit.
func limitName(l *ratelimit.LimitSpec) string {
	switch {
	case l == nil:
		return ""
	case l.Multiplier > 1:
		return fmt.Sprintf("%d/%d%ss", l.Requests, l.Multiplier, l.Unit)
	}
	return strings.TrimSpace(fmt.Sprintf("%d/%s %s", l.Requests, l.Unit, l.Calendar))
}

// listedKey is a key as `keys list -o json` prints it.
type listedKey struct {
	ID        string            `json:"id"`
	Owner     string            `json:"owner"`
	Plan      string            `json:"plan,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Scopes    []string          `json:"scopes,omitempty"`
	State     string            `json:"state"`
	Weak      bool              `json:"weak,omitempty"`
	Unsigned  bool              `json:"unsigned,omitempty"` // the service refuses it
	NotBefore time.Time         `json:"not_before,omitzero"`
	Expires   time.Time         `json:"expires,omitzero"`
	Created   time.Time         `json:"created,omitzero"`
	Limit     string            `json:"limit,omitempty"`
	// PreviousUntil is the time at which the previous key with this id ends.
	PreviousUntil time.Time `json:"previous_valid_until,omitzero"`
}

// listedKeys returns all keys of a place that can be read.
func (k *keyCommand) listedKeys(keys rediskeys.Copy) []listedKey {
	list := []listedKey{}
	for _, r := range keys.Records {
		list = append(list, k.listed(r))
	}
	for _, refused := range keys.Refused {
		if refused.Record != nil {
			l := k.listed(*refused.Record)
			l.Unsigned = true
			list = append(list, l)
		}
	}
	if len(keys.Refused) > 0 {
		slices.SortFunc(list, func(a, b listedKey) int { return strings.Compare(a.ID, b.ID) })
	}
	return list
}

func (k *keyCommand) listed(r apikey.Record) listedKey {
	l := listedKey{
		ID: r.ID, Owner: r.Owner, Plan: r.Plan, Labels: r.Labels, Scopes: r.Scopes, State: r.State(k.now), Weak: r.Weak,
		NotBefore: r.NotBefore, Expires: r.Expires, Created: r.Created, Limit: limitName(r.Limit),
	}
	if r.Previous != nil {
		l.PreviousUntil = r.Previous.ValidUntil
	}
	return l
}
