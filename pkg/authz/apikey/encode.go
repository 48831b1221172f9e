package apikey

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Encode returns a record as stores keep it: compact JSON in one line. The error is that of Err.
func (r Record) Encode() ([]byte, error) {
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("key %q: %w", r.ID, err)
	}
	return json.Marshal(r)
}

// Decode reads and checks the output of Encode. id is the id under which the store has the record, "" for a store
// without ids; a record with another id is an error. So is an unknown field, because it may restrict the key in a way
// that this version does not know. The error never holds a key or a hash. Record.ID may be set beside an error.
func Decode(id string, data []byte) (Record, error) { return new(Decoder).Decode(id, data) }

// Decoder decodes many records with less work than Decode. The zero value is ready for use.
type Decoder struct {
	text bytes.Reader
	json *json.Decoder // reads text; nil at first and after an error
}

// Decode does the same as the function Decode.
func (d *Decoder) Decode(id string, data []byte) (Record, error) {
	d.text.Reset(data)
	if d.json == nil {
		d.json = json.NewDecoder(&d.text)
		d.json.DisallowUnknownFields()
	}
	var r Record
	if err := d.json.Decode(&r); err != nil {
		d.json = nil
		var named struct{ ID string } // the error may be before the id
		_ = json.Unmarshal(data, &named)
		return Record{ID: named.ID}, fmt.Errorf("not readable: %w", withoutText(err))
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		d.json = nil
		return Record{}, errors.New("not readable: text after the record")
	}
	if err := checkJSON(data, len(r.Labels)); err != nil {
		return Record{}, fmt.Errorf("not readable: %w", err)
	}
	if r.ID = cmp.Or(r.ID, id); id != "" && r.ID != id {
		return Record{}, errors.New("this is the record of another id")
	}
	if err := r.Err(); err != nil {
		return Record{ID: r.ID}, err
	}
	return r, nil
}

// checkJSON returns an error if data, the JSON of a record with so many labels, can be read in more than one way.
// encoding/json accepts `Disabled` for `disabled`, and takes the last of two fields with the same name.
func checkJSON(data []byte, labels int) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	depth, inLabels := 0, false
	seen := [...][][]byte{1: make([][]byte, 0, 16), 2: make([][]byte, 0, 8)}
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{':
			depth++
		case '}':
			depth--
		case '"':
			begin := i + 1
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			name := data[begin:i]
			switch after := bytes.TrimLeft(data[i+1:], " \t\r\n"); {
			case after[0] != ':': // a value
			case depth == 2 && inLabels:
				labels--
			case len(bytes.Trim(name, "abcdefghijklmnopqrstuvwxyz_")) > 0:
				return fmt.Errorf("unknown field `%s`", name)
			case slices.ContainsFunc(seen[depth], func(other []byte) bool { return bytes.Equal(other, name) }):
				return fmt.Errorf("the field `%s` appears twice", name)
			default:
				seen[depth] = append(seen[depth], name)
				inLabels = string(name) == "labels" // no nested object has a field of this name
			}
		}
	}
	if labels != 0 {
		return errors.New("a label appears twice")
	}
	return nil
}

// withoutText returns an error of the decoder without the values that it may repeat. It names the field if known.
func withoutText(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return errors.New("want a JSON object")
		}
		return fmt.Errorf("%s: want %s", wrong.Field, wanted(wrong.Type))
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok {
		return errors.New("not a time")
	}
	switch {
	case errors.Is(err, descriptors.ErrUnit):
		return fmt.Errorf("limit.unit: %w", err)
	case errors.Is(err, bucket.ErrAlgorithm):
		return fmt.Errorf("limit.algorithm: %w", err)
	}
	return err
}

// wanted names the JSON that a field of this type is read from.
func wanted(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a text"
	}
	return cmp.Or(map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.Int64: "a whole number", reflect.Uint64: "a whole number",
		reflect.Slice: "a list", reflect.Struct: "a JSON object", reflect.Map: "a JSON object",
	}[t.Kind()], "a text")
}
