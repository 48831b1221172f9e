package apikey

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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

// Err returns the first mistake of a record, with the names of its JSON; nil for none. It shows no key and no hash.
func (r Record) Err() error {
	const itsOwn = "add the one that `extauthz keys create` gave it"
	const chosen = "a key that you choose yourself needs `weak: true`"
	switch {
	case r.ID == "":
		return mistake("an API key without `id`", itsOwn)
	case !r.Weak && !isID(r.ID):
		return mistake("`id` cannot be "+suggest.Quoted(r.ID),
			fmt.Sprintf("want %d letters or digits, as `extauthz keys create` writes it", idLength), chosen)
	case r.Weak && (len(r.ID) > maxText || strings.Trim(r.ID, base62+"._-") != ""):
		return mistake("`id` cannot be "+suggest.Quoted(r.ID),
			fmt.Sprintf("want a name of at most %d letters, digits, `_`, `.` and `-`", maxText), chosen)
	case r.Hash.IsZero():
		return mistake("an API key without `hash`", itsOwn)
	case r.Owner == "":
		return mistake("an API key without `owner`", "add `owner: <name of the owner>`")
	}
	if err := r.checkTexts(); err != nil {
		return err
	}
	switch p := r.Previous; {
	case !r.Expires.IsZero() && !r.Expires.After(r.NotBefore):
		return mistake("`expires` is not after `not_before`", "so the key would never be valid")
	case p != nil && p.Hash.IsZero():
		return mistake("`previous` without `hash`", "add the hash that the key had before, or delete `previous`")
	case p != nil && p.ValidUntil.IsZero():
		return mistake("`previous` without `valid_until`",
			"add the time until which the previous key is valid, or delete `previous`")
	}
	if r.Limit != nil {
		if err := checkLimit(*r.Limit); err != nil {
			return err
		}
	}
	if r.Version < 0 || r.Version > maxVersion {
		return mistake(fmt.Sprintf("`version` cannot be %d", r.Version), "want the time of a change, in µs since 1970")
	}
	return nil
}

func mistake(message string, hints ...string) error {
	return fmt.Errorf("%s (%s)", Mask(message), strings.Join(hints, "; "))
}

// checkTexts checks the owner, the plan, the labels and the scopes.
func (r Record) checkTexts() error {
	for _, text := range [...]struct{ key, value string }{{"owner", r.Owner}, {"plan", r.Plan}} {
		if text.value != "" {
			if err := checkText(text.key, text.value); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		if err := textErr(name); err != nil {
			return mistake(suggest.Quoted(name)+" cannot be the name of a label", err.Error())
		}
		if err := checkText(name, r.Labels[name]); err != nil {
			return err
		}
	}
	for _, scope := range r.Scopes {
		err := textErr(scope)
		if scope == "" || strings.Contains(scope, " ") { // spaces separate scopes
			err = errors.New("want one word")
		}
		if err != nil {
			return mistake("a scope cannot be "+suggest.Quoted(scope), err.Error())
		}
	}
	return nil
}

func checkText(key, text string) error {
	if err := textErr(text); err != nil {
		return mistake(suggest.Quoted(key)+" cannot be "+suggest.Quoted(text), err.Error())
	}
	return nil
}

// textErr returns why a text cannot be an owner, a plan, or the name or value of a label; nil if it can.
func textErr(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("want at most %d bytes", maxText)
	}
	return credential.CheckText(text)
}

// checkLimit checks the limit of a key. Without an algorithm, it must be valid for all of them.
func checkLimit(l ratelimit.LimitSpec) error {
	if l.Unit == descriptors.UnknownUnit {
		return mistake("a limit without `unit`", "add `unit: second` (or minute, hour, day, week, month, year)")
	}
	if l.Calendar == "" {
		l.Algorithm = cmp.Or(l.Algorithm, bucket.TokenBucket)
	}
	if _, err := l.Bucket(); err != nil {
		hint := "the limit of a key must be one that can be counted exactly"
		if err.Field == "calendar" {
			hint = "a calendar needs one day, week, month or year, fixed_window, and a zone such as Europe/Berlin or UTC"
		}
		return mistake(err.Message, hint)
	}
	return nil
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
