package strictyaml

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
)

// readString reads a single value as the text that the file has: 5 and true are texts, too.
func readString(d *decoder, _ *section, f field, into reflect.Value) bool {
	if f.value.shape != scalar {
		d.fail(f.value.at, fmt.Sprintf("%s is a text, not %s", suggest.Quoted(f.key), f.value.shape))
		return false
	}
	into.SetString(f.value.text)
	return true
}

// readBool reads true or false.
func readBool(d *decoder, _ *section, f field, into reflect.Value) bool {
	v := f.value
	b, isBool := parseBool(v.text)
	switch {
	case v.shape == scalar && v.plain && isBool:
		into.SetBool(b)
		return true
	case isBool:
		d.fail(v.at, suggest.Quoted(f.key)+" is `true` or `false`, not a text in quotes",
			"write it without quotes: "+suggest.Quoted(v.text))
	default:
		d.fail(v.at, fmt.Sprintf("%s is `true` or `false`, not %s", suggest.Quoted(f.key), shown(v)),
			suggest.DidYouMean(v.text, []string{"true", "false"}))
	}
	return false
}

// readInteger returns a reader of whole numbers within bounds.
func readInteger(least, most int64) reader {
	want := fmt.Sprintf("want a whole number from %d to %d", least, most)
	if most == math.MaxInt64 {
		want = fmt.Sprintf("want a whole number, %d or more", least)
	}
	return func(d *decoder, _ *section, f field, into reflect.Value) bool {
		v := f.value
		n, isNumber := parseNumber(v.text)
		switch {
		case v.shape != scalar || !isNumber:
			d.fail(v.at, fmt.Sprintf("%s is a number, not %s", suggest.Quoted(f.key), shown(v)), want)
		case !v.plain:
			d.fail(v.at, suggest.Quoted(f.key)+" is a number, not a text in quotes",
				"write it without quotes: "+suggest.Quoted(n.digits))
		case n.octal:
			d.fail(v.at, ambiguous(v.text), octalHint(n))
		case !n.whole:
			d.fail(v.at, fmt.Sprintf("%s is a whole number, not %s", suggest.Quoted(f.key), suggest.Quoted(v.text)),
				wholeHint(n, want))
		default:
			i, err := strconv.ParseInt(n.digits, 0, 64)
			// What is out of bounds is set, too, for what a check says about the key.
			if err == nil && setInteger(into, i) && i >= least && i <= most {
				return true
			}
			hint := want
			if most == math.MaxInt64 && errors.Is(err, strconv.ErrRange) && d.kind.Huge != "" {
				hint = d.kind.Huge
			}
			d.fail(v.at, fmt.Sprintf("%s cannot be %s", suggest.Quoted(f.key), suggest.Quoted(v.text)), hint)
		}
		return false
	}
}

// setInteger sets an integer, and returns false if the number does not fit.
func setInteger(into reflect.Value, i int64) bool {
	switch {
	case into.CanInt() && !into.OverflowInt(i):
		into.SetInt(i)
	case into.CanUint() && i >= 0 && !into.OverflowUint(uint64(i)):
		into.SetUint(uint64(i))
	default:
		return false
	}
	return true
}

// octalHint says how to write what 010 may have meant.
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

// wholeHint says how to write 1e3 and 5.0. For other fractions it says what is wanted.
func wholeHint(n number, want string) string {
	if f, err := strconv.ParseFloat(n.digits, 64); err == nil && f == float64(int64(f)) && f < 1e15 {
		return fmt.Sprintf("write `%d`", int64(f))
	}
	return want
}

// readText returns a reader of values with an UnmarshalText method. words are those that it takes, nil for others.
// No message repeats a secret.
func readText(words []string, secret bool) reader {
	return func(d *decoder, _ *section, f field, into reflect.Value) bool {
		v := f.value
		if v.shape != scalar && words == nil {
			return readString(d, nil, f, reflect.Value{})
		}
		err := unmarshalText(v, into)
		switch {
		case err == nil:
			return true
		case words != nil:
			d.fail(v.at, fmt.Sprintf("%s cannot be %s", suggest.Quoted(f.key), shown(v)),
				suggest.DidYouMean(v.text, words), "want "+suggest.OneOf(words))
		case secret:
			d.fail(v.at, "the value of "+suggest.Quoted(f.key)+" is not valid", err.Error())
		default:
			d.fail(v.at, fmt.Sprintf("%s cannot be %s", suggest.Quoted(f.key), shown(v)), err.Error())
		}
		return false
	}
}

func unmarshalText(v *Value, into reflect.Value) error {
	if v.shape != scalar {
		return errors.New("want a text")
	}
	return into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(v.text))
}

// readDuration reads a time span such as 200ms, 30s or 1m30s.
func readDuration(d *decoder, _ *section, f field, into reflect.Value) bool {
	const want = "want a number with its unit, such as `200ms`, `1.5s` or `1m`"
	v := f.value
	span, err := time.ParseDuration(v.text)
	_, isNumber := parseNumber(v.text)
	switch {
	case v.shape != scalar:
		d.fail(v.at, fmt.Sprintf("%s is a duration, not %s", suggest.Quoted(f.key), v.shape), want)
	case err == nil && span < 0:
		d.fail(v.at, fmt.Sprintf("%s cannot be %s", suggest.Quoted(f.key), suggest.Quoted(v.text)), "want 0 or more")
	case err == nil:
		into.SetInt(int64(span))
		return true
	case isNumber:
		d.fail(v.at, fmt.Sprintf("%s lacks the unit of %s", suggest.Quoted(f.key), suggest.Quoted(v.text)),
			"for seconds write "+suggest.Quoted(v.text+"s")+", for milliseconds "+suggest.Quoted(v.text+"ms"))
	default:
		d.fail(v.at, fmt.Sprintf("%s cannot be %s", suggest.Quoted(f.key), shown(v)), want)
	}
	return false
}

// readTime reads a time (RFC 3339), or a date, which is its first moment in UTC.
func readTime(d *decoder, _ *section, f field, into reflect.Value) bool {
	v := f.value
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, v.text); err == nil && v.shape == scalar && t.Year() >= 1970 {
			into.Set(reflect.ValueOf(t.UTC()))
			return true
		}
	}
	d.fail(v.at, fmt.Sprintf("%s cannot be %s", suggest.Quoted(f.key), shown(v)),
		"want a date such as `2026-12-31`, or a time such as `2026-12-31T18:00:00Z`")
	return false
}

// readTexts returns a reader of lists of texts, none of them empty. needs says that the list needs an element.
func readTexts(needs bool, words []string) reader {
	return func(d *decoder, _ *section, f field, into reflect.Value) bool {
		v := f.value
		switch {
		case v.shape == scalar:
			d.fail(v.at, fmt.Sprintf("%s is a list, not %s", suggest.Quoted(f.key), shown(v)),
				"put it in brackets: "+suggest.Quoted("["+v.text+"]"))
			return false
		case v.shape != list:
			d.fail(v.at, fmt.Sprintf("%s is a list, not %s", suggest.Quoted(f.key), v.shape),
				"put `- ` before each element")
			return false
		case len(v.items) == 0 && needs:
			d.fail(f.at, suggest.Quoted(f.key)+" is empty", "add an element, or delete "+suggest.Quoted(f.key))
			return false
		}
		into.Set(reflect.MakeSlice(into.Type(), len(v.items), len(v.items)))
		for i, item := range v.items {
			if !item.unread && !readElement(d, f.key, item, words, into.Index(i)) {
				item.unread = true
			}
			v.partial = v.partial || item.unread
		}
		return true
	}
}

func readElement(d *decoder, key string, v *Value, words []string, into reflect.Value) bool {
	element := "an element of " + suggest.Quoted(key)
	switch {
	case v.shape != scalar && v.shape != null:
		d.fail(v.at, fmt.Sprintf("%s is a text, not %s", element, v.shape))
		return false
	case v.text == "" || v.shape == null:
		d.fail(v.at, element+" is empty", "delete it")
		return false
	case into.CanAddr() && !isText(into.Type()):
		into.SetString(v.text)
		return true
	}
	err := unmarshalText(v, into)
	switch {
	case err == nil:
		return true
	case words != nil:
		d.fail(v.at, element+" cannot be "+shown(v), suggest.DidYouMean(v.text, words),
			"want one of "+suggest.OneOf(words))
	default:
		d.fail(v.at, element+" cannot be "+shown(v), err.Error())
	}
	return false
}

// mapExample is the hint for what is no map, by the example of the key.
func (k *key) mapExample() string {
	if example := k.tag.Get("example"); example != "" {
		return "for example " + suggest.Quoted(k.name+": "+example)
	}
	return ""
}

// readLabels returns a reader of maps of texts to texts.
func readLabels(k *key) reader {
	return func(d *decoder, _ *section, f field, into reflect.Value) bool {
		if f.value.shape != mapping {
			d.fail(f.value.at, fmt.Sprintf("%s is a map, not %s", suggest.Quoted(f.key), f.value.shape), k.mapExample())
			return false
		}
		labels := make(map[string]string, len(f.value.fields))
		for _, l := range f.value.fields {
			switch {
			case l.value.unread:
			case l.value.shape != scalar:
				d.fail(l.value.at, fmt.Sprintf("%s is a text, not %s", suggest.Quoted(l.key), l.value.shape))
				l.value.unread = true
			default:
				labels[l.key] = l.value.text
			}
		}
		into.Set(reflect.ValueOf(labels))
		return true
	}
}

// readFree returns a reader of maps of anything.
func readFree(k *key) reader {
	return func(d *decoder, _ *section, f field, into reflect.Value) bool {
		if f.value.shape != mapping {
			d.fail(f.value.at, fmt.Sprintf("%s is a map, not %s", suggest.Quoted(f.key), f.value.shape), k.mapExample())
			return false
		}
		into.Set(reflect.ValueOf(d.free(f.value)))
		return true
	}
}

// free returns a value as plain Go data.
func (d *decoder) free(v *Value) any {
	switch v.shape {
	case mapping:
		m := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			m[f.key] = d.free(f.value)
		}
		return m
	case list:
		l := make([]any, len(v.items))
		for i, item := range v.items {
			l[i] = d.free(item)
		}
		return l
	case scalar:
		if !v.plain {
			return v.text
		}
		resolved, err := resolve(v.text)
		if err != nil {
			d.fail(v.at, err.Error(), "put it in quotes, or write it without the leading 0")
		}
		return resolved
	}
	return nil
}

// shown returns a value as messages repeat it.
func shown(v *Value) string {
	if v.shape == scalar {
		return suggest.Quoted(v.text)
	}
	return v.shape.String()
}
