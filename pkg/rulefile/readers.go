package rulefile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// text reads a single value as the text that the file has: 5 and true are texts, too.
func text(r *report, f field) (string, bool) {
	if f.value.kind != scalar {
		r.fail(f.value.at, fmt.Sprintf("%s is a text, not %s", quoted(f.key), f.value.kind))
		return "", false
	}
	return f.value.text, true
}

// boolean reads true or false.
func boolean(r *report, f field) (bool, bool) {
	v := f.value
	if v.kind == scalar && v.plain {
		if b, ok := parseBool(v.text); ok {
			return b, true
		}
	}
	hint := didYouMean(v.text, []string{"true", "false"})
	if _, isBool := parseBool(v.text); isBool {
		r.fail(v.at, fmt.Sprintf("%s is `true` or `false`, not a text in quotes", quoted(f.key)), "write it without quotes: "+quoted(v.text))
		return false, false
	}
	r.fail(v.at, fmt.Sprintf("%s is `true` or `false`, not %s", quoted(f.key), shown(v)), hint)
	return false, false
}

// whole returns a reader of whole numbers from a least one on. What is the most depends on the other keys of a limit.
func whole(least int64) reader[int64] {
	return wholeNumber(least, math.MaxInt64, fmt.Sprintf("want a whole number, %d or more", least),
		"no limit can be that large: for none at all write `unlimited: true` and nothing else")
}

// between returns a reader of whole numbers from a least one to a most one. What is out of bounds is reported and read all the same,
// so that what else is wrong with it is found.
func between[T int | int64](least, most int64) reader[T] {
	want := fmt.Sprintf("want a whole number from %d to %d", least, most)
	read := wholeNumber(math.MinInt64, math.MaxInt64, want, want)
	return func(r *report, f field) (T, bool) {
		n, ok := read(r, f)
		if ok && (n < least || n > most) {
			r.fail(f.value.at, fmt.Sprintf("%s cannot be %s", quoted(f.key), quoted(f.value.text)), want)
		}
		return T(n), ok
	}
}

// wholeNumber returns a reader of whole numbers within bounds. want says what they are, tooLarge what to do about a number that
// does not fit 64 bits.
func wholeNumber(least, most int64, want, tooLarge string) reader[int64] {
	return func(r *report, f field) (int64, bool) {
		v, want := f.value, want
		n, ok := parseNumber(v.text)
		switch {
		case v.kind != scalar || !ok:
			r.fail(v.at, fmt.Sprintf("%s is a number, not %s", quoted(f.key), shown(v)), want)
		case !v.plain:
			r.fail(v.at, fmt.Sprintf("%s is a number, not a text in quotes", quoted(f.key)), "write it without quotes: "+quoted(n.digits))
		case n.octal:
			r.fail(v.at, fmt.Sprintf("%s is ambiguous: a leading 0 means octal to some YAML readers", quoted(v.text)), octalHint(n))
		case !n.whole:
			r.fail(v.at, fmt.Sprintf("%s is a whole number, not %s", quoted(f.key), quoted(v.text)), wholeHint(n, want))
		default:
			i, err := strconv.ParseInt(n.digits, 0, 64)
			if err == nil && i >= least && i <= most {
				return i, true
			}
			if errors.Is(err, strconv.ErrRange) {
				want = tooLarge
			}
			r.fail(v.at, fmt.Sprintf("%s cannot be %s", quoted(f.key), quoted(v.text)), want)
		}
		return 0, false
	}
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

// wholeHint says how to write 1e3 and 5.0; of other fractions it says what is wanted.
func wholeHint(n number, want string) string {
	if f, err := strconv.ParseFloat(n.digits, 64); err == nil && f == float64(int64(f)) && f < 1e15 {
		return fmt.Sprintf("write `%d`", int64(f))
	}
	return want
}

// word returns a reader of one of some words.
func word[V any](words []string, parse func(string) (V, bool)) reader[V] {
	return func(r *report, f field) (V, bool) {
		if f.value.kind == scalar {
			if v, ok := parse(f.value.text); ok {
				return v, true
			}
		}
		var none V
		r.fail(f.value.at, fmt.Sprintf("%s cannot be %s", quoted(f.key), shown(f.value)),
			didYouMean(f.value.text, words), "want "+oneOf(words))
		return none, false
	}
}

// each reads a list of maps by their schema; place tells an element where it stands.
func each[T any](schema object[T], locate func(*T, place)) reader[[]T] {
	return func(r *report, f field) ([]T, bool) {
		if f.value.kind != list {
			r.fail(f.value.at, fmt.Sprintf("%s is a list, not %s", quoted(f.key), f.value.kind), "put `- ` before each element")
			return nil, false
		}
		ts := make([]T, 0, len(f.value.items))
		for _, item := range f.value.items {
			if item.broken {
				r.dropped[item] = true
				continue
			}
			t, ok := readObject(r, schema, item)
			if !ok {
				r.dropped[item] = true
				continue
			}
			locate(&t, item.at)
			ts = append(ts, t)
		}
		return ts, true
	}
}

func descriptorList(r *report, f field) ([]descriptorKeys, bool) {
	return each(descriptorSchema(), func(d *descriptorKeys, at place) { d.at = at })(r, f)
}

func limitList(r *report, f field) ([]limitKeys, bool) {
	return each(limitSchema(), func(l *limitKeys, at place) { l.at = at })(r, f)
}

func replacesList(r *report, f field) ([]replacesKeys, bool) {
	return each(replacesSchema(), func(e *replacesKeys, at place) { e.at = at })(r, f)
}

func oneLimit(r *report, f field) (limitKeys, bool) {
	if f.value.kind == list {
		r.fail(f.value.at, "`rate_limit` is a map, not a list", "for several limits of one descriptor write `limits:`")
		return limitKeys{}, false
	}
	l, ok := readObject(r, limitSchema(), f.value)
	l.at = f.at
	return l, ok
}

// freeMap reads a map of anything (metadata).
func freeMap(r *report, f field) (map[string]any, bool) {
	if f.value.kind != mapping {
		r.fail(f.value.at, fmt.Sprintf("%s is a map, not %s", quoted(f.key), f.value.kind))
		return nil, false
	}
	m, _ := free(r, f.value).(map[string]any)
	return m, true
}

// free is a value as plain Go data.
func free(r *report, v *value) any {
	switch v.kind {
	case mapping:
		m := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			m[f.key] = free(r, f.value)
		}
		return m
	case list:
		l := make([]any, len(v.items))
		for i, item := range v.items {
			l[i] = free(r, item)
		}
		return l
	case scalar:
		if !v.plain {
			return v.text
		}
		resolved, err := resolve(v.text)
		if err != nil {
			r.fail(v.at, err.Error(), "put it in quotes, or write it without the leading 0")
		}
		return resolved
	}
	return nil
}

// shown is a value as messages repeat it.
func shown(v *value) string {
	if v.kind == scalar {
		return quoted(v.text)
	}
	return v.kind.String()
}
