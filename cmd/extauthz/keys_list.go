package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// list prints all keys, without anything that helps to guess one.
func (c *keyCommand) list(ctx context.Context, args []string) error {
	var form string
	c.flags.StringVar(&form, "o", "table", "")
	place, err := c.parseAndOpen(args)
	if err != nil {
		return err
	}
	defer place.Close()
	list, state, found := place.all(ctx)
	if found != nil {
		found = fmt.Errorf("%s: %w", place, found)
		if len(list) == 0 {
			return found
		}
	}
	switch form {
	case "table":
		err = c.listTable(list)
	case "json":
		err = c.listJSON(list)
	default:
		return &usageError{fmt.Errorf("-o %q: want table or json", form)}
	}
	if state != "" {
		fmt.Fprintf(c.stderr, "State of the keys in %s: %s\n", place, state)
	}
	return errors.Join(err, found)
}

func (c *keyCommand) listTable(list []placedKey) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tOWNER\tPLAN\tSTATE\tEXPIRES\tLIMIT\tSCOPES\tLABELS")
	for _, r := range list {
		columns := []string{r.ID, r.Owner, r.Plan, c.state(r), shortTime(r.Expires), limitName(r.Limit), strings.Join(r.Scopes, ","), labels(r.Labels)}
		for i, column := range columns {
			if column == "" {
				columns[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(columns, "\t"))
	}
	return w.Flush()
}

// state is what the key is good for now, and what else one should know of it.
func (c *keyCommand) state(r placedKey) string {
	state := r.State(c.now)
	switch {
	case r.unsigned && r.Weak:
		state += ", weak, not signed (never trusted: make it anew)"
	case r.unsigned:
		state += ", not signed"
	case r.Weak:
		state += ", weak"
	}
	if r.Previous != nil && c.now.Before(r.Previous.ValidUntil) {
		state += ", rotating until " + shortTime(r.Previous.ValidUntil)
	}
	return state
}

// labels writes labels as --label has them, in quotes where they could be taken for others.
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
	case t.Equal(t.Truncate(day)):
		return t.Format(time.DateOnly)
	}
	return t.Format(time.RFC3339)
}

// limitName is a limit in the words of --limit.
func limitName(l *ratelimit.LimitSpec) string {
	switch {
	case l == nil:
		return ""
	case l.Multiplier > 1:
		return fmt.Sprintf("%d/%d%ss", l.Requests, l.Multiplier, l.Unit)
	}
	return fmt.Sprintf("%d/%s", l.Requests, l.Unit)
}

// listedKey is a key as `keys list -o json` has it.
type listedKey struct {
	ID        string            `json:"id"`
	Owner     string            `json:"owner"`
	Plan      string            `json:"plan,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Scopes    []string          `json:"scopes,omitempty"`
	State     string            `json:"state"`
	Weak      bool              `json:"weak,omitempty"`
	Unsigned  bool              `json:"unsigned,omitempty"`
	NotBefore time.Time         `json:"not_before,omitzero"`
	Expires   time.Time         `json:"expires,omitzero"`
	Created   time.Time         `json:"created,omitzero"`
	Limit     string            `json:"limit,omitempty"`
	// PreviousUntil is when the key before this one ends.
	PreviousUntil time.Time `json:"previous_valid_until,omitzero"`
}

func (c *keyCommand) listJSON(placed []placedKey) error {
	list := make([]listedKey, len(placed))
	for i, r := range placed {
		list[i] = listedKey{
			ID: r.ID, Owner: r.Owner, Plan: r.Plan, Labels: r.Labels, Scopes: r.Scopes, State: r.State(c.now), Weak: r.Weak,
			Unsigned:  r.unsigned,
			NotBefore: r.NotBefore, Expires: r.Expires, Created: r.Created, Limit: limitName(r.Limit),
		}
		if r.Previous != nil {
			list[i].PreviousUntil = r.Previous.ValidUntil
		}
	}
	e := json.NewEncoder(c.stdout)
	e.SetIndent("", "  ")
	return e.Encode(list)
}
