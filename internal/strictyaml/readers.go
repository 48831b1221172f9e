package strictyaml

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
)

// reader reads the value of a key, or an element of its list, into a Go value. false means that it reported a problem.
type reader func(d *decoder, f field, into reflect.Value) bool

// name returns the name of a value in messages.
func (f field) name() string {
	if f.element {
		return "an element of " + suggest.Quoted(f.key)
	}
	return suggest.Quoted(f.key)
}

// isNot reports a value of another type than its key takes.
func (d *decoder) isNot(f field, want, got string, hints ...string) bool {
	return d.fail(f.value.at, fmt.Sprintf("%s is %s, not %s", f.name(), want, got), hints...)
}

// cannotBe reports a value that its key does not take.
func (d *decoder) cannotBe(f field, hints ...string) bool {
	return d.fail(f.value.at, fmt.Sprintf("%s cannot be %s", f.name(), f.value), hints...)
}

func readBool(d *decoder, f field, into reflect.Value) bool {
	const want = "`true` or `false`"
	v := f.value
	b, isBool := parseBool(v.text)
	switch {
	case !isBool:
		return d.isNot(f, want, v.String(), suggest.DidYouMean(v.text, []string{"true", "false"}))
	case !v.plain:
		return d.isNot(f, want, "a text in quotes", "write it without quotes: "+suggest.Quoted(v.text))
	}
	into.SetBool(b)
	return true
}

// readInteger returns a reader of whole numbers within bounds.
func readInteger(least, most int64) reader {
	want := fmt.Sprintf("want a whole number from %d to %d", least, most)
	if most == math.MaxInt64 {
		want = fmt.Sprintf("want a whole number, %d or more", least)
	}
	return func(d *decoder, f field, into reflect.Value) bool {
		v := f.value
		n, isNumber := parseNumber(v.text)
		switch {
		case !isNumber:
			return d.isNot(f, "a number", v.String(), want)
		case !v.plain:
			return d.isNot(f, "a number", "a text in quotes", "write it without quotes: "+suggest.Quoted(n.digits))
		case n.octal:
			return d.fail(v.at, ambiguous(v.text), octalHint(n))
		case !n.whole:
			return d.isNot(f, "a whole number", v.String(), wholeHint(n, want))
		}
		i, err := strconv.ParseInt(n.digits, 0, 64)
		if err == nil { // a number out of bounds is set as well: a check may have more to report about the key
			into.Set(reflect.ValueOf(i).Convert(into.Type()))
		}
		switch {
		case err == nil && i >= least && i <= most:
			return true
		case most == math.MaxInt64 && errors.Is(err, strconv.ErrRange) && d.kind.Huge != "":
			return d.cannotBe(f, d.kind.Huge)
		}
		return d.cannotBe(f, want)
	}
}

// octalHint returns the hint for a number such as 010: how to write what it may have meant.
func octalHint(n number) string {
	decimal, err := strconv.ParseInt(n.digits, 10, 64)
	if err != nil {
		return "write it without the leading 0"
	}
	if octal, err := strconv.ParseInt(n.digits, 0, 64); err == nil && octal != decimal {
		return fmt.Sprintf("envoyproxy/ratelimit reads %d: write `%d` for that, or `%d`", octal, octal, decimal)
	}
	return fmt.Sprintf("write `%d`", decimal)
}

// wholeHint returns the hint for a number such as 1e3 or 5.0: how to write it. For other fractions it returns want.
func wholeHint(n number, want string) string {
	if f, err := strconv.ParseFloat(n.digits, 64); err == nil && f == float64(int64(f)) && f < 1e15 {
		return fmt.Sprintf("write `%d`", int64(f))
	}
	return want
}

// readDuration reads a duration such as 200ms, 30s or 1m30s.
func readDuration(d *decoder, f field, into reflect.Value) bool {
	const want = "want a number with its unit, such as `200ms`, `1.5s` or `1m`"
	v := f.value
	span, err := time.ParseDuration(v.text)
	_, isNumber := parseNumber(v.text)
	switch {
	case v.shape != scalar:
		return d.isNot(f, "a duration", v.String(), want)
	case err == nil && span < 0:
		return d.cannotBe(f, "want 0 or more")
	case err != nil && isNumber:
		return d.fail(v.at, fmt.Sprintf("%s has no unit: %s", f.name(), v),
			"for seconds write "+suggest.Quoted(v.text+"s")+", for milliseconds "+suggest.Quoted(v.text+"ms"))
	case err != nil:
		return d.cannotBe(f, want)
	}
	into.SetInt(int64(span))
	return true
}

// readText returns a reader of texts, exactly as written, and of types with an UnmarshalText method. 5 and true are
// texts, too. An element must not be empty. words are the words that the type takes, nil for others. A word that is
// surely meant is read after the report, so that the checks of the file go on.
func readText(words []string) reader {
	return func(d *decoder, f field, into reflect.Value) bool {
		v, err := f.value, error(nil)
		switch {
		case f.element && (v.shape == null || v.shape == scalar && v.text == ""):
			return d.fail(v.at, f.name()+" is empty", "delete it")
		case v.shape != scalar && (words == nil || f.element):
			return d.isNot(f, "a text", v.String())
		case v.shape == scalar && !isText(into.Type()):
			into.SetString(v.text)
			return true
		case v.shape == scalar:
			if err = into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(v.text)); err == nil {
				return true
			}
		}
		if words == nil {
			return d.cannotBe(f, err.Error())
		}
		want, hint := "want ", suggest.DidYouMean(v.text, words)
		if f.element {
			want = "want one of "
		}
		if w, ok := into.Addr().Interface().(otherWords); ok {
			hint = cmp.Or(w.OtherWord(v.text), hint)
		}
		d.cannotBe(f, hint, want+suggest.OneOf(words))
		word := suggest.Closest(v.text, words)
		return suggest.Sure(v.text, word) &&
			into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(word)) == nil
	}
}

// otherWords is a type of words that knows those of other programs.
type otherWords interface {
	// OtherWord returns the hint for a word of another program, "" for none.
	OtherWord(word string) string
}

// readStruct reads a map into a struct.
func (k *key) readStruct(d *decoder, f field, into reflect.Value) bool {
	s := k.section(d.kind)
	switch {
	case f.value.shape == list && !f.element && s.IfList != "":
		return d.isNot(f, "a map", "a list", s.IfList)
	case f.value.shape == scalar && s.IfText != "":
		return d.isNot(f, "a map", f.value.String(), s.IfText)
	}
	return d.object(s, f, into)
}

// readList returns a reader of lists with at least so many elements. element reads one element.
func (k *key) readList(element reader, least int64) reader {
	return func(d *decoder, f field, into reflect.Value) bool {
		v := f.value
		switch {
		case v.shape == scalar && k.object == nil:
			return d.isNot(f, "a list", v.String(), "put it in brackets: "+suggest.Quoted("["+v.text+"]"))
		case v.shape != list:
			return d.isNot(f, "a list", v.shape.String(), "put `- ` before each element")
		case len(v.items) == 0 && least > 0:
			return d.fail(f.at, f.name()+" is empty", "add an element, or delete "+f.name())
		}
		into.Set(reflect.MakeSlice(into.Type(), len(v.items), len(v.items)))
		for i, item := range v.items {
			at := field{key: f.key, at: item.at, value: item, element: true}
			item.unread = item.unread || !element(d, at, into.Index(i))
			v.partial = v.partial || item.unread && k.object == nil
		}
		return true
	}
}

// listUnmarshaler is a type that takes a list of texts, too.
type listUnmarshaler interface{ UnmarshalList(elements []string) }

// readTextOrList reads a value of a listUnmarshaler.
func (k *key) readTextOrList(d *decoder, f field, into reflect.Value) bool {
	switch f.value.shape {
	case mapping:
		return d.isNot(f, "a text or a list", "a map", forExample(k.example()))
	case list:
		return k.readTexts(d, f, into)
	}
	return readText(nil)(d, f, into)
}

// readStructOrList reads a value of a listUnmarshaler that is a struct.
func (k *key) readStructOrList(d *decoder, f field, into reflect.Value) bool {
	if f.value.shape == list {
		return k.readTexts(d, f, into)
	}
	return k.readStruct(d, f, into)
}

// readTexts reads a list into a listUnmarshaler.
func (k *key) readTexts(d *decoder, f field, into reflect.Value) bool {
	var elements []string
	texts := key{name: k.name, tag: k.tag} // its elements are no maps
	read := texts.readList(readText(nil), 1)(d, f, reflect.ValueOf(&elements).Elem())
	into.Addr().Interface().(listUnmarshaler).UnmarshalList(elements)
	return read && !f.value.partial
}

// readMap reads a map with any keys.
func (k *key) readMap(d *decoder, f field, into reflect.Value) bool {
	if f.value.shape != mapping {
		return d.isNot(f, "a map", f.value.shape.String(), forExample(k.example()))
	}
	into.Set(reflect.ValueOf(d.data(f.value)))
	return true
}

// readEntries returns a reader of maps from texts to texts or numbers, which are not empty. element reads one value. A
// type with an UnmarshalText method takes a word, too.
func (k *key) readEntries(element reader) reader {
	return func(d *decoder, f field, into reflect.Value) bool {
		v := f.value
		switch {
		case v.shape == scalar && isText(into.Type()):
			return readText(nil)(d, f, into)
		case v.shape != mapping:
			return d.isNot(f, "a map", v.String(), forExample(k.example()))
		case len(v.fields) == 0:
			return d.fail(f.at, f.name()+" is empty", "add a key, or delete "+f.name())
		}
		into.Set(reflect.MakeMapWithSize(into.Type(), len(v.fields)))
		read := true
		for _, one := range v.fields {
			value := reflect.New(into.Type().Elem()).Elem()
			one.value.unread = one.value.unread || !element(d, one, value)
			read = read && !one.value.unread
			into.SetMapIndex(reflect.ValueOf(one.key), value)
		}
		return read
	}
}

// data returns a value as plain Go data.
func (d *decoder) data(v *Value) any {
	switch v.shape {
	case mapping:
		m := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			m[f.key] = d.data(f.value)
		}
		return m
	case list:
		l := make([]any, len(v.items))
		for i, item := range v.items {
			l[i] = d.data(item)
		}
		return l
	case scalar:
		if !v.plain {
			return v.text
		}
		if n, ok := parseNumber(v.text); ok && n.octal {
			d.fail(v.at, ambiguous(v.text), "put it in quotes, or write it without the leading 0")
		}
		return resolve(v.text)
	}
	return nil
}

// String returns a value for messages: a scalar in backquotes, or the name of another shape.
func (v *Value) String() string {
	if v.shape == scalar {
		return suggest.Quoted(v.text)
	}
	return v.shape.String()
}
