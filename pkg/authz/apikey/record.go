package apikey

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Record is the stored form of a key. Key files and Redis hold its JSON.
type Record struct {
	// ID is the public part of the key. For a weak key, the operator chooses it.
	ID   string `json:"id,omitempty"`
	Hash Hash   `json:"hash"`
	// Owner names the owner of the key. Required.
	Owner string `json:"owner"`
	// Plan is what the owner pays for, "" for none.
	Plan   string            `json:"plan,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Scopes []string          `json:"scopes,omitempty"`
	// The key is valid from NotBefore on and until before Expires. The zero time is no bound.
	NotBefore time.Time `json:"not_before,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	// Created is when the key was made, zero if unknown.
	Created  time.Time `json:"created,omitzero"`
	Disabled bool      `json:"disabled,omitempty"`
	// Weak marks a key that the operator chose: it is not random, and has neither id nor checksum.
	Weak bool `json:"weak,omitempty"`
	// Limit is the limit of this key; nil for none.
	Limit *ratelimit.LimitSpec `json:"limit,omitempty"`
	// Previous is the key with the same id before this one, which stays valid for a while; nil for none.
	Previous *Previous `json:"previous,omitempty"`
	// Version grows with each change. It distinguishes a changed record from an older one.
	Version int64 `json:"version,omitempty"`
}

// Previous is a replaced hash.
type Previous struct {
	Hash Hash `json:"hash"`
	// ValidUntil is when the key of this hash ends.
	ValidUntil time.Time `json:"valid_until"`
}

// maxVersion is larger than the time of any change, and leaves room for later versions.
const maxVersion = math.MaxInt64 / 2

// maxText is the longest text of a record in bytes: an owner is part of headers and of bucket keys.
const maxText = 256

// checkText returns an error if a text cannot be an owner, a plan, or the name or value of a label.
func checkText(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("want at most %d bytes", maxText)
	}
	return credential.CheckText(text)
}

// checkScope returns an error if a text cannot be a scope. Spaces separate scopes.
func checkScope(text string) error {
	if text == "" || strings.Contains(text, " ") {
		return errors.New("want one word")
	}
	return checkText(text)
}

// Err returns the first mistake of Check as an error, nil for none.
func (r Record) Err() error {
	mistakes := r.Check()
	if len(mistakes) == 0 {
		return nil
	}
	return fmt.Errorf("%s (%s)", mistakes[0].Message, strings.Join(mistakes[0].Hints, "; "))
}

// Check returns all mistakes of a record, with the names of its JSON. No message shows a key or a hash.
func (r Record) Check() []ratelimit.Mistake {
	var c checks
	c.id(r)
	c.when(r.Hash.IsZero(), "hash", "an API key without `hash`", "add the one that `extauthz keys create` gave it")
	c.texts(r)
	c.when(!r.Expires.IsZero() && !r.Expires.After(r.NotBefore), "expires",
		"`expires` is not after `not_before`", "so the key would never be valid")
	if p := r.Previous; p != nil {
		c.when(p.Hash.IsZero(), "previous.hash", "`previous` without `hash`",
			"add the hash that the key had before, or delete `previous`")
		c.when(p.ValidUntil.IsZero(), "previous.valid_until", "`previous` without `valid_until`",
			"add the time until which the previous key is valid, or delete `previous`")
	}
	if r.Limit != nil {
		c.limit(*r.Limit)
	}
	c.when(r.Version < 0 || r.Version > maxVersion, "version",
		fmt.Sprintf("`version` cannot be %d", r.Version), "want the time of a change, in µs since 1970")
	return c.mistakes
}

type checks struct{ mistakes []ratelimit.Mistake }

func (c *checks) add(path, message string, hints ...string) {
	c.mistakes = append(c.mistakes, ratelimit.Mistake{Path: path, Message: Mask(message), Hints: hints})
}

// when adds a mistake if something is wrong.
func (c *checks) when(wrong bool, path, message, hint string) {
	if wrong {
		c.add(path, message, hint)
	}
}

func (c *checks) id(r Record) {
	want := ""
	switch {
	case r.ID == "":
		c.add("id", "an API key without `id`", "add the one that `extauthz keys create` gave it")
		return
	case !r.Weak && !isID(r.ID):
		want = fmt.Sprintf("want %d letters or digits, as `extauthz keys create` writes it", idLength)
	case r.Weak && (len(r.ID) > maxText || strings.Trim(r.ID, base62+"._-") != ""):
		want = fmt.Sprintf("want a name of at most %d letters, digits, `_`, `.` and `-`", maxText)
	default:
		return
	}
	c.add("id", "`id` cannot be "+suggest.Quoted(r.ID), want, "a key that you choose yourself needs `weak: true`")
}

func (c *checks) texts(r Record) {
	text := func(path, name, text string) {
		if err := checkText(text); err != nil {
			c.add(path, suggest.Quoted(name)+" cannot be "+suggest.Quoted(text), err.Error())
		}
	}
	if r.Owner == "" {
		c.add("owner", "an API key without `owner`", "add `owner: <name of the owner>`")
	} else {
		text("owner", "owner", r.Owner)
	}
	if r.Plan != "" {
		text("plan", "plan", r.Plan)
	}
	before := len(c.mistakes)
	for name, value := range r.Labels {
		if err := checkText(name); err != nil {
			c.add("labels", suggest.Quoted(name)+" cannot be the name of a label", err.Error())
			continue
		}
		text("labels."+name, name, value)
	}
	slices.SortFunc(c.mistakes[before:], func(a, b ratelimit.Mistake) int { return strings.Compare(a.Message, b.Message) })
	for i, scope := range r.Scopes {
		if err := checkScope(scope); err != nil {
			c.add(fmt.Sprintf("scopes[%d]", i), "a scope cannot be "+suggest.Quoted(scope), err.Error())
		}
	}
}

// limit checks the limit of a key. Without an algorithm, it must be valid for all of them.
func (c *checks) limit(l ratelimit.LimitSpec) {
	if l.Unit == descriptors.UnknownUnit {
		c.add("limit.unit", "a limit without `unit`", "add `unit: second` (or minute, hour, day, week, month, year)")
		return
	}
	l.Algorithm = cmp.Or(l.Algorithm, bucket.TokenBucket)
	_, err := l.Bucket()
	if err == nil {
		return
	}
	c.add("limit."+err.Field, err.Message, "the limit of a key must be one that can be counted exactly")
	c.mistakes[len(c.mistakes)-1].Also = []string{
		"limit.requests_per_unit", "limit.unit", "limit.unit_multiplier", "limit.algorithm", "limit.burst",
	}
}

// State returns the state of a record at a time: valid, disabled, expired, or not_yet.
func (r Record) State(now time.Time) string {
	switch {
	case r.Disabled:
		return "disabled"
	case !r.Expires.IsZero() && !now.Before(r.Expires):
		return "expired"
	case now.Before(r.NotBefore):
		return "not_yet"
	}
	return "valid"
}
