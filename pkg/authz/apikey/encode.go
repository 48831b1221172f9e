package apikey

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Encode returns a record as stores keep it: compact JSON in one line. The error is that of Err.
func (r Record) Encode() ([]byte, error) {
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("key %q: %w", r.ID, err)
	}
	return json.Marshal(r)
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
	var r Record
	if err := d.json.Decode(&r); err != nil {
		d.json = nil
		return Record{}, fmt.Errorf("not readable: %w", withoutText(err))
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		d.json = nil
		return Record{}, errors.New("not readable: text after the record")
	}
	if r.ID = cmp.Or(r.ID, id); id != "" && r.ID != id {
		return Record{}, errors.New("this is the record of another id")
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
