package rulefile

import (
	"encoding"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// texts reads a list of texts, none of them empty.
func texts(r *report, f field) ([]string, bool) {
	switch f.value.kind {
	case list:
	case scalar:
		r.fail(f.value.at, fmt.Sprintf("%s is a list, not %s", quoted(f.key), shown(f.value)), "put it in brackets: "+quoted("["+f.value.text+"]"))
		return nil, false
	default:
		r.fail(f.value.at, fmt.Sprintf("%s is a list, not %s", quoted(f.key), f.value.kind), "put `- ` before each element")
		return nil, false
	}
	if len(f.value.items) == 0 {
		r.fail(f.at, quoted(f.key)+" is empty", "add an element, or delete "+quoted(f.key))
		return nil, false
	}
	var items []string
	for _, v := range f.value.items {
		switch {
		case v.broken:
		case v.kind != scalar:
			r.fail(v.at, fmt.Sprintf("an element of %s is a text, not %s", quoted(f.key), v.kind))
		case v.text == "":
			r.fail(v.at, "an element of "+quoted(f.key)+" is empty", "delete it")
		default:
			items = append(items, v.text)
			continue
		}
		r.dropped[v] = true
	}
	return items, len(items) == len(f.value.items)
}

// duration reads a time span such as 200ms, 30s or 1m30s.
func duration(r *report, f field) (time.Duration, bool) {
	const want = "want a number with its unit, such as `200ms`, `1.5s` or `1m`"
	d, err := time.ParseDuration(f.value.text)
	_, isNumber := parseNumber(f.value.text)
	switch {
	case f.value.kind != scalar:
		r.fail(f.value.at, fmt.Sprintf("%s is a duration, not %s", quoted(f.key), f.value.kind), want)
	case err == nil && d < 0:
		r.fail(f.value.at, fmt.Sprintf("%s cannot be %s", quoted(f.key), quoted(f.value.text)), "want 0 or more")
	case err == nil:
		return d, true
	case isNumber:
		r.fail(f.value.at, fmt.Sprintf("%s lacks the unit of %s", quoted(f.key), quoted(f.value.text)),
			"for seconds write "+quoted(f.value.text+"s")+", for milliseconds "+quoted(f.value.text+"ms"))
	default:
		r.fail(f.value.at, fmt.Sprintf("%s cannot be %s", quoted(f.key), shown(f.value)), want)
	}
	return 0, false
}

// words reads a type of fixed words.
func words[V any, P interface {
	*V
	encoding.TextUnmarshaler
	Words() []string
}](r *report, f field) (V, bool) {
	return word(P(new(V)).Words(), func(text string) (v V, ok bool) {
		err := P(&v).UnmarshalText([]byte(text))
		return v, err == nil
	})(r, f)
}

// nameOrOff reads the name of a header, "" when there is to be none: off, or an empty text.
func nameOrOff(r *report, f field) (authz.OptionalHeader, bool) {
	name, ok := text(r, f)
	if is, isBool := parseBool(name); ok && f.value.plain && isBool {
		if is {
			r.fail(f.value.at, fmt.Sprintf("%s is the name of a header, not %s", quoted(f.key), quoted(name)), "without the key it has its default name; `off` sends none")
		}
		return "", !is
	}
	return authz.OptionalHeader(name), ok
}

// one reads a map by its schema.
func one[T any](schema func() object[T]) reader[T] {
	return func(r *report, f field) (T, bool) { return readObject(r, schema(), f.value) }
}

// put is a row of a schema whose value goes into a field. Of a list that could be read in part, that part does.
func put[T, V any](name string, read reader[V], where func(*T) *V) key[T] {
	return key[T]{name: name, read: func(r *report, f field, into *T) bool {
		if f.value.broken || f.value.kind == null { // a key without a value is as good as no key
			return !f.value.broken
		}
		v, ok := read(r, f)
		*where(into) = v
		return ok
	}}
}

// maybe is a row whose value goes into a field that is nil without it.
func maybe[T, V any](name string, read reader[V], where func(*T) **V) key[T] {
	return put(name, func(r *report, f field) (*V, bool) {
		v, ok := read(r, f)
		if !ok {
			return nil, false
		}
		return &v, true
	}, where)
}

// bare makes a row of one for a key that says enough without a value: `path:` is as good as `path: {}`.
func bare[T any](row key[T]) key[T] {
	return key[T]{name: row.name, read: func(r *report, f field, into *T) bool {
		if f.value.kind == null && !f.value.broken {
			f.value = &value{kind: mapping, at: f.value.at}
		}
		return row.read(r, f, into)
	}}
}

// positioned reads a list of maps that keep where they are.
func positioned[T any](schema object[T], where func(*T) *string) reader[[]T] {
	return func(r *report, f field) ([]T, bool) {
		return each(schema, func(t *T, at place) { *where(t) = r.position(at) })(r, f)
	}
}

func credentialList(r *report, f field) ([]authz.Credential, bool) {
	return positioned(credentialSchema(), func(c *authz.Credential) *string { return &c.Position })(r, f)
}

func accessList(r *report, f field) ([]authz.Access, bool) {
	return positioned(accessSchema(), func(a *authz.Access) *string { return &a.Position })(r, f)
}

// limitsOf reads the elements of a list, `limits` or `refused`.
func limitsOf(list string) reader[[]authz.RateLimit] {
	return positioned(requestLimitSchema(list), func(l *authz.RateLimit) *string { return &l.Position })
}

func actionList(r *report, f field) ([]authz.Action, bool) {
	return each(actionSchema(), func(*authz.Action, place) {})(r, f)
}
