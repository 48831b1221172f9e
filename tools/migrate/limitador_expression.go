package migrate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

const (
	// entryExpression is an entry of a descriptor in CEL, or its key alone, as Limitador 1 writes it.
	entryExpression = `(?:descriptors\s*\[\s*([0-9]{1,9})\s*\]\s*` +
		`(?:\.\s*([A-Za-z_][A-Za-z0-9_]*)|\[\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\])|([A-Za-z_][A-Za-z0-9_.-]*))`
	textExpression = `(?:'([^'\\]*)'|"([^"\\]*)")`
)

var (
	entryOnly   = regexp.MustCompile(`^\s*` + entryExpression + `\s*$`)
	entryFirst  = regexp.MustCompile(`^\s*` + entryExpression + `\s*==\s*` + textExpression + `\s*(&&|$)`)
	entrySecond = regexp.MustCompile(`^\s*` + textExpression + `\s*==\s*` + entryExpression + `\s*(&&|$)`)
)

// entry is an entry of a descriptor that an expression names.
type entry struct {
	descriptor int
	key        string
}

// entryOf returns the entry of the groups of entryExpression.
func entryOf(groups []string) entry {
	index, _ := strconv.Atoi(groups[0]) // digits, or nothing for a key alone
	return entry{index, groups[1] + groups[2] + groups[3] + groups[4]}
}

// condition reads one condition: entries that equal texts, joined by &&.
func (r *limitador) condition(l *limit, v *strictyaml.Value) {
	for rest, joint := v.Text(), "&&"; joint != ""; {
		var e entry
		var value string
		groups := entryFirst.FindStringSubmatch(rest)
		if groups != nil {
			e, value, joint = entryOf(groups[1:6]), groups[6]+groups[7], groups[8]
		} else if groups = entrySecond.FindStringSubmatch(rest); groups != nil {
			e, value, joint = entryOf(groups[3:8]), groups[1]+groups[2], groups[8]
		} else {
			r.Fail(v, "the condition "+suggest.Quoted(v.Text())+" has no equivalent", byHand(v.Text()))
			return
		}
		r.use(l, v, e)
		r.demand(l, v, e.key, value)
		rest = rest[len(groups[0]):]
	}
}

// use notes that a limit reads an entry.
func (r *limitador) use(l *limit, v *strictyaml.Value, e entry) {
	switch {
	case strings.Contains(e.key, "*") || e.key == "":
		r.Fail(v, "a rule cannot name the key "+suggest.Quoted(e.key), "let Envoy send the entry under another key")
	case e.key == "descriptors" || e.key == "limit" || strings.HasPrefix(e.key, "limit."):
		r.Fail(v, suggest.Quoted(e.key)+" is not an entry of a descriptor",
			"write an entry, such as `descriptors[0]['user_id']`")
	case l.descriptor >= 0 && l.descriptor != e.descriptor:
		r.Fail(v, fmt.Sprintf("this limit reads descriptors %d and %d, and a rule matches one", l.descriptor, e.descriptor),
			"let Envoy send all entries of the limit in one descriptor")
	default:
		l.descriptor = e.descriptor
		l.keys = append(l.keys, e.key)
	}
}

// demand notes the value that a condition demands.
func (r *limitador) demand(l *limit, v *strictyaml.Value, key, value string) {
	first, known := l.equal[key]
	switch {
	case value == "":
		r.Fail(v, "a rule cannot demand an empty value",
			"let Envoy send the entry only if the value is empty: `header_value_match` of a route")
	case strings.Contains(value, "*"):
		r.Fail(v, "a `*` in a value stands for any characters in a rule",
			"let Envoy send another value for it: `header_value_match` of a route")
	case known && first != value:
		r.Fail(v, suggest.Quoted(key)+" cannot be "+suggest.Quoted(first)+" and "+suggest.Quoted(value)+
			": the limit never applies", "delete the limit, or write one limit for each value")
	default:
		l.equal[key] = value
	}
}

// variable reads one variable: an entry.
func (r *limitador) variable(l *limit, v *strictyaml.Value) {
	groups := entryOnly.FindStringSubmatch(v.Text())
	if groups == nil {
		r.Fail(v, "the variable "+suggest.Quoted(v.Text())+" has no equivalent",
			"a rule counts by entries as they are: let Envoy send the computed value as an entry")
		return
	}
	r.use(l, v, entryOf(groups[1:6]))
}

// texts returns the elements of a list of texts. It reports what is none.
func (r *limitador) texts(v *strictyaml.Value, key string) (texts []*strictyaml.Value) {
	if !v.IsAbsent() && !v.IsList() {
		r.Fail(v, suggest.Quoted(key)+" is not a list: "+v.String(), "put it in brackets")
	}
	for _, item := range v.Items() {
		if !item.IsText() {
			r.Fail(item, "an element of "+suggest.Quoted(key)+" is not a text: "+item.String())
			continue
		}
		texts = append(texts, item)
	}
	return texts
}

// byHand returns what to do about a condition that has no equivalent.
func byHand(condition string) string {
	const header = "let Envoy decide it: with `header_value_match`, a route sends an entry only if "
	for _, known := range []struct{ operator, hint string }{
		{"||", "the alternatives share one counter there: " + header + "one of them holds, and limit that entry"},
		{"!=", header + "a header does not match (`expect_match: false`), and limit that entry"},
		{"!", header + "a header does not match (`expect_match: false`), and limit that entry"},
		{"matches", header + "a header matches the regular expression, and limit that entry"},
		{"startsWith", "write the rule by hand: a wildcard such as `value: /api/*` with `share_threshold: true`"},
		{"endsWith", "write the rule by hand: a wildcard such as `value: \"*.png\"` with `share_threshold: true`"},
		{"contains", "write the rule by hand: a wildcard such as `value: \"*bot*\"` with `share_threshold: true`"},
		{" in ", "the alternatives share one counter there: " + header + "one of them holds, and limit that entry"},
		{"==", "want an entry and a text in quotes, such as `descriptors[0]['req.method'] == 'POST'`"},
	} {
		if strings.Contains(condition, known.operator) {
			return known.hint
		}
	}
	return "want a comparison, such as `descriptors[0]['req.method'] == 'POST'`"
}
