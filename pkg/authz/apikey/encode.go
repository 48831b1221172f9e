package apikey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// recordJSON is a record as a store keeps it, with the names of the key file.
type recordJSON struct {
	Hash      Hash              `json:"hash"`
	Owner     string            `json:"owner"`
	Plan      string            `json:"plan,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Scopes    []string          `json:"scopes,omitempty"`
	NotBefore time.Time         `json:"not_before,omitzero"`
	Expires   time.Time         `json:"expires,omitzero"`
	Created   time.Time         `json:"created,omitzero"`
	Disabled  bool              `json:"disabled,omitempty"`
	Weak      bool              `json:"weak,omitempty"`
	Limit     *limitJSON        `json:"limit,omitempty"`
	Previous  *previousJSON     `json:"previous,omitempty"`
	Version   int64             `json:"version,omitempty"`
}

type previousJSON struct {
	Hash       Hash      `json:"hash"`
	ValidUntil time.Time `json:"valid_until"`
}

type limitJSON struct {
	RequestsPerUnit int64  `json:"requests_per_unit"`
	Unit            string `json:"unit"`
	UnitMultiplier  uint64 `json:"unit_multiplier,omitempty"`
	Algorithm       string `json:"algorithm,omitempty"`
	Burst           int64  `json:"burst,omitempty"`
}

// Encode returns a record as a store keeps it beside its id: compact JSON, in the words of the key file.
func (r Record) Encode() ([]byte, error) {
	j := recordJSON{
		Hash: r.Hash, Owner: r.Owner, Plan: r.Plan, Labels: r.Labels, Scopes: r.Scopes,
		NotBefore: r.NotBefore, Expires: r.Expires, Created: r.Created, Disabled: r.Disabled, Weak: r.Weak,
		Previous: (*previousJSON)(r.Previous), Version: r.Version,
	}
	if l := r.Limit; l != nil {
		j.Limit = &limitJSON{RequestsPerUnit: l.Requests, Unit: l.Unit.String(), UnitMultiplier: l.Multiplier, Burst: l.Burst}
		if l.Algorithm != 0 {
			j.Limit.Algorithm = l.Algorithm.String()
		}
	}
	return json.Marshal(j)
}

// Decode reads what Encode wrote for the record with this id, and checks it. Fields that it does not know may restrict a key
// in a way that it can not keep to, so they are errors.
func Decode(id string, data []byte) (Record, error) {
	var j recordJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return Record{}, fmt.Errorf("key %q: not readable: %w", id, withoutText(err))
	}
	if d.More() {
		return Record{}, fmt.Errorf("key %q: not readable: text after the record", id)
	}
	r := Record{
		ID: id, Hash: j.Hash, Previous: (*Previous)(j.Previous), Owner: j.Owner, Plan: j.Plan, Labels: j.Labels, Scopes: j.Scopes,
		NotBefore: j.NotBefore, Expires: j.Expires, Created: j.Created, Disabled: j.Disabled, Weak: j.Weak,
		Version: j.Version,
	}
	if l := j.Limit; l != nil {
		unit, ok := descriptors.ParseUnit(l.Unit)
		if !ok {
			return Record{}, fmt.Errorf("key %q: limit: unknown unit", id)
		}
		r.Limit = &ratelimit.LimitSpec{Requests: l.RequestsPerUnit, Unit: unit, Multiplier: l.UnitMultiplier, Burst: l.Burst}
		if l.Algorithm != "" {
			a, err := bucket.ParseAlgorithm(l.Algorithm)
			if err != nil {
				return Record{}, fmt.Errorf("key %q: limit: %w", id, err)
			}
			r.Limit.Algorithm = a
		}
	}
	if err := r.Check(); err != nil {
		return Record{}, fmt.Errorf("key %q: %w", id, err)
	}
	return r, nil
}

// withoutText is an error of the decoder without the values that it may repeat.
func withoutText(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: not a %s", wrong.Field, wrong.Type)
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok {
		return errors.New("not a time")
	}
	return err
}
