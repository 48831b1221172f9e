package rulefile

import (
	"fmt"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// item is an element of a list of texts, and where it stands.
type item struct {
	text string
	at   place
}

// texts reads a list of texts, none of them empty.
func texts(r *report, f field) ([]item, bool) {
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
	items := make([]item, 0, len(f.value.items))
	for _, v := range f.value.items {
		switch {
		case v.broken:
		case v.kind != scalar:
			r.fail(v.at, fmt.Sprintf("an element of %s is a text, not %s", quoted(f.key), v.kind))
		case v.text == "":
			r.fail(v.at, "an element of "+quoted(f.key)+" is empty", "delete it")
		default:
			items = append(items, item{text: v.text, at: v.at})
		}
	}
	return items, len(items) == len(f.value.items)
}

// plainTexts are the elements of a list without their places, nil for none.
func plainTexts(items []item) []string {
	var list []string
	for _, i := range items {
		list = append(list, i.text)
	}
	return list
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

// allowOrDeny reads allow (true) or deny.
func allowOrDeny(r *report, f field) (bool, bool) { return either("allow", "deny")(r, f) }

// allowedOrDenied reads allowed or denied.
func allowedOrDenied(r *report, f field) (ratelimit.Override, bool) {
	var o ratelimit.Override
	return word(o.Words(), func(text string) (ratelimit.Override, bool) {
		err := o.UnmarshalText([]byte(text))
		return o, err == nil
	})(r, f)
}

// either returns a reader of one of two words, of which the first is true.
func either(yes, no string) reader[bool] {
	return word([]string{yes, no}, func(text string) (bool, bool) { return text == yes, text == yes || text == no })
}

func requirement(r *report, f field) (authz.Requirement, bool) {
	return word([]string{"open", "credential", "denied"}, func(text string) (authz.Requirement, bool) {
		switch text {
		case "open":
			return authz.Open, true
		case "denied":
			return authz.Denied, true
		}
		return authz.NeedCredential, text == "credential"
	})(r, f)
}

// nameOrOff reads the name of a header, "" when there is to be none: off, or an empty text.
func nameOrOff(r *report, f field) (string, bool) {
	name, ok := text(r, f)
	if is, isBool := parseBool(name); ok && f.value.plain && isBool {
		if is {
			r.fail(f.value.at, fmt.Sprintf("%s is the name of a header, not %s", quoted(f.key), quoted(name)), "without the key it has its default name; `off` sends none")
		}
		return "", !is
	}
	return strings.ToLower(name), ok
}

// one reads a map by its schema.
func one[T any](schema func() object[T]) reader[T] {
	return func(r *report, f field) (T, bool) { return readObject(r, schema(), f.value) }
}

// bare is a row for a key that says enough without a value: `path:` is as good as `path: {}`.
func bare[T, V any](name string, read reader[V], where func(*T) *given[V]) key[T] {
	row := on(name, read, where)
	return key[T]{name: name, read: func(r *report, f field, into *T) bool {
		if f.value.kind == null && !f.value.broken {
			f.value = &value{kind: mapping, at: f.value.at}
		}
		return row.read(r, f, into)
	}}
}

func credentialList(r *report, f field) ([]credentialKeys, bool) {
	return each(credentialSchema(), func(c *credentialKeys, at place) { c.at = at })(r, f)
}

func accessList(r *report, f field) ([]accessKeys, bool) {
	return each(accessSchema(), func(a *accessKeys, at place) { a.at = at })(r, f)
}

// limitsOf reads the elements of a list, `limits` or `refused`.
func limitsOf(list string) reader[[]requestLimitKeys] {
	return each(requestLimitSchema(list), func(l *requestLimitKeys, at place) { l.at = at })
}

func actionList(r *report, f field) ([]actionKeys, bool) {
	return each(actionSchema(), func(a *actionKeys, at place) { a.at = at })(r, f)
}
