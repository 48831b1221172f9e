package apikey

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// recordJSON is a record as JSON, in a key file and in Redis.
type recordJSON struct {
	ID        string            `json:"id,omitempty"`
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

// Encode returns a record as stores keep it: compact JSON in one line.
func (r Record) Encode() ([]byte, error) {
	j := recordJSON{
		ID: r.ID, Hash: r.Hash, Owner: r.Owner, Plan: r.Plan, Labels: r.Labels, Scopes: r.Scopes,
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

// Decode reads and checks what Encode wrote. If the store has the record under an id, that is the id of a record
// without one, and the record must not have another one; id is "" for a store that has none. Unknown fields are
// errors, because they may restrict the key in a way that this version does not know. The error never holds a key or
// a hash; Record.ID may be set in spite of it.
func Decode(id string, data []byte) (Record, error) { return new(Decoder).Decode(id, data) }

// Decoder decodes many records with less work than Decode. The zero value is ready for use.
type Decoder struct {
	text bytes.Reader
	json *json.Decoder // reads text; nil at first and after an error
}

// Decode is the function Decode.
func (d *Decoder) Decode(id string, data []byte) (Record, error) {
	d.text.Reset(data)
	if d.json == nil {
		d.json = json.NewDecoder(&d.text)
		d.json.DisallowUnknownFields()
	}
	var j recordJSON
	if err := d.json.Decode(&j); err != nil {
		d.json = nil
		return Record{}, fmt.Errorf("not readable: %w", withoutText(err))
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		d.json = nil
		return Record{}, errors.New("not readable: text after the record")
	}
	r := Record{
		ID: cmp.Or(j.ID, id), Hash: j.Hash, Previous: (*Previous)(j.Previous),
		Owner: j.Owner, Plan: j.Plan, Labels: j.Labels, Scopes: j.Scopes,
		NotBefore: j.NotBefore, Expires: j.Expires, Created: j.Created, Disabled: j.Disabled, Weak: j.Weak,
		Version: j.Version,
	}
	if id != "" && r.ID != id {
		return Record{}, errors.New("this is the record of another id")
	}
	if l := j.Limit; l != nil {
		unit, ok := descriptors.ParseUnit(l.Unit)
		if !ok {
			return Record{ID: r.ID}, errors.New("limit: unknown unit")
		}
		r.Limit = &ratelimit.LimitSpec{Requests: l.RequestsPerUnit, Unit: unit, Multiplier: l.UnitMultiplier, Burst: l.Burst}
		if l.Algorithm != "" {
			a, err := bucket.ParseAlgorithm(l.Algorithm)
			if err != nil {
				return Record{ID: r.ID}, fmt.Errorf("limit: %w", err)
			}
			r.Limit.Algorithm = a
		}
	}
	if err := r.Err(); err != nil {
		return Record{ID: r.ID}, err
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
