package apikey

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Record is all that is kept of a key.
type Record struct {
	// ID is the public part of the key. A weak key has a name of somebody's choice.
	ID   string
	Hash Hash
	// Previous is the hash of the key with the same id before this one, which stays valid for a while; nil for none.
	Previous *Previous
	// Owner is whose key it is. Required.
	Owner string
	// Plan is what the owner pays for, "" for none.
	Plan   string
	Labels map[string]string
	Scopes []string
	// NotBefore and Expires bound when the key is valid: from the one on, until before the other. The zero time is no bound.
	NotBefore, Expires time.Time
	// Created is when the key was made, zero when that is not known.
	Created  time.Time
	Disabled bool
	// Weak says that the key is a text of somebody's choice: not random, without id and checksum.
	Weak bool
	// Limit is the key's own; nil for none.
	Limit *ratelimit.LimitSpec
	// Version is larger after each change than any other record's before it, so that a Source can tell a record that was put back
	// from one that was changed. 0 in a file, which has no versions.
	Version int64
}

// Previous is a hash that has been replaced.
type Previous struct {
	Hash Hash
	// ValidUntil is when the key it belongs to ends.
	ValidUntil time.Time
}

// CheckID reports what is wrong with an id.
func (r Record) CheckID() error {
	switch {
	case !r.Weak && !isID(r.ID):
		return fmt.Errorf("want %d letters or digits, as `extauthz keys create` writes it", idLength)
	case r.Weak && (r.ID == "" || len(r.ID) > maxText || strings.Trim(r.ID, base62+"._-") != ""):
		return fmt.Errorf("want a name of at most %d letters, digits, `_`, `.` and `-`", maxText)
	}
	return nil
}

// maxText is how long a text of a record may be: an owner goes into headers and keys of buckets.
const maxText = 256

// CheckText returns an error if a text cannot be an owner, a plan, or the name or value of a label.
func CheckText(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("want at most %d bytes", maxText)
	}
	return authz.CheckText(text)
}

// CheckScope reports why a text can not be a scope: spaces part scopes.
func CheckScope(text string) error {
	if strings.Contains(text, " ") {
		return errors.New("want one word")
	}
	return CheckText(text)
}

// CheckLimit returns an error if a limit cannot be a key's own. Without an algorithm it must do for all of them.
func CheckLimit(l ratelimit.LimitSpec) *ratelimit.SpecError {
	if l.Algorithm == 0 {
		l.Algorithm = bucket.TokenBucket
	}
	_, err := l.Bucket()
	return err
}

// Check reports the first thing that is wrong with a record, nil when it can be used.
func (r Record) Check() error {
	if err := r.CheckID(); err != nil {
		return fmt.Errorf("id %q: %w", r.ID, err)
	}
	if err := r.checkTexts(); err != nil {
		return err
	}
	switch {
	case r.Hash.IsZero():
		return errors.New("hash: want one")
	case r.Previous != nil && (r.Previous.Hash.IsZero() || r.Previous.ValidUntil.IsZero()):
		return errors.New("previous: want a hash and until when it is valid")
	case !r.Expires.IsZero() && !r.Expires.After(r.NotBefore):
		return errors.New("expires: want a time after not_before")
	}
	if r.Limit != nil {
		if err := CheckLimit(*r.Limit); err != nil {
			return fmt.Errorf("limit: %w", err)
		}
	}
	return nil
}

func (r Record) checkTexts() error {
	if err := CheckText(r.Owner); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if err := CheckText(r.Plan); err != nil && r.Plan != "" {
		return fmt.Errorf("plan: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		if err := errors.Join(CheckText(name), CheckText(r.Labels[name])); err != nil {
			return fmt.Errorf("label %q: %w", name, err)
		}
	}
	for _, scope := range r.Scopes {
		if err := CheckScope(scope); err != nil {
			return fmt.Errorf("scope %q: %w", scope, err)
		}
	}
	return nil
}

// State says in a word what a record is good for at a time: valid, disabled, expired, or not_yet.
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
