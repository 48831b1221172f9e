package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// LimitadorKind describes the limits file of Limitador.
func LimitadorKind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun:      "limits file of Limitador",
		Begins:    "it is a list of limits, each with namespace, max_value, seconds, conditions and variables",
		Second:    "a limits file is one document: convert each document separately",
		List:      true,
		MaxSize:   4 << 20,
		TooLarge:  "is this a limits file?",
		MaxValues: 500_000,
	}
}

// Limitador converts a limits file into one rule file for each namespace. descriptors are the keys of the descriptors
// that Envoy sends here, in the order of their entries.
//
// In Limitador, every limit whose conditions hold applies to a request. Here a descriptor matches one rule. So limits
// that read the same entries become one tree, and limits that read other entries need a descriptor of their own.
func Limitador(f strictyaml.File, descriptors [][]string) *Converted {
	r := &limitador{reading: reading{Document: strictyaml.Read(f, LimitadorKind())}, given: descriptors}
	c := new(Converted)
	var domains []ratelimit.Domain
	for _, limits := range grouped(r.limits(), func(l *limit) string { return l.namespace }) {
		namespace := limits[0].namespace
		trees := r.assign(limits)
		nodes := r.nodes(trees)
		if len(nodes) == 0 {
			continue
		}
		domains = append(domains, ratelimit.Domain{Name: namespace, Descriptors: nodes})
		for _, t := range trees {
			if t.refused {
				continue
			}
			c.note("Envoy must send domain %s a descriptor with exactly the entries %s, in this order.",
				suggest.Quoted(namespace), suggest.List(t.keys, " and "))
		}
	}
	c.Problems = r.Problems()
	for _, d := range domains {
		var b strings.Builder
		fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", scalar(d.Name))
		writeNodes(&b, d.Descriptors, "  ")
		c.add(c.fileName(d.Name), f.Name, b.String())
	}
	if len(domains) > 0 {
		c.note("The window of a limit of Limitador begins with its first request. These limits use the default algorithm, " +
			"sliding_window, which lets no more than the limit pass in any window.")
	}
	c.check()
	return c
}

// limitador reads one limits file.
type limitador struct {
	reading
	given [][]string // the keys of descriptors
}

// limit is a limit of Limitador that has an equivalent.
type limit struct {
	at              *strictyaml.Value
	namespace, name string
	spec            ratelimit.LimitSpec
	// descriptor is the index of the descriptor that the limit reads.
	descriptor int
	// equal are the values that conditions demand, by key. keys are the keys of conditions and variables, sorted.
	equal map[string]string
	keys  []string
}

// limits reads all limits that have an equivalent.
func (r *limitador) limits() (limits []*limit) {
	for _, v := range r.Root().Items() {
		if l := r.limit(v); l != nil {
			limits = append(limits, l)
		}
	}
	if root := r.Root(); root != nil && len(root.Items()) == 0 {
		r.Fail(nil, "the list has no limits")
	}
	return limits
}

// limit reads one limit. It returns nil if the limit has no equivalent, which it reports.
func (r *limitador) limit(v *strictyaml.Value) *limit {
	if !v.IsMap() {
		r.Fail(v, "a limit is a map, not "+v.String(), "it has namespace, max_value, seconds, conditions and variables")
		return nil
	}
	at := map[string]*strictyaml.Value{}
	for key, value := range v.Fields() {
		switch key {
		case "namespace", "max_value", "seconds", "name", "conditions", "variables", "id":
			at[key] = value
		default:
			r.Warn(value, suggest.Quoted(key)+" is no key of a limit: it is left out, as Limitador does")
		}
	}
	l := &limit{at: v, equal: map[string]string{}, descriptor: -1}
	r.failed = false // all mistakes of a limit are reported
	l.namespace = r.text(v, at, "namespace", true)
	l.name = unusual.ReplaceAllString(r.text(v, at, "name", false), "_")
	if name := at["name"]; l.name != name.Text() {
		r.Warn(name, "the name becomes "+suggest.Quoted(l.name)+", because headers name the limit")
	}
	r.window(l, at, r.number(v, at, "max_value", 0), r.number(v, at, "seconds", 1))
	for _, item := range r.texts(at["conditions"], "conditions") {
		r.condition(l, item)
	}
	for _, item := range r.texts(at["variables"], "variables") {
		r.variable(l, item)
	}
	if r.failed {
		return nil
	}
	slices.Sort(l.keys)
	l.keys = slices.Compact(l.keys)
	return l
}

// text returns a text of a limit.
func (r *limitador) text(limit *strictyaml.Value, at map[string]*strictyaml.Value, key string, required bool) string {
	v := at[key]
	switch {
	case v.IsAbsent() && !required:
	case v.IsAbsent() || v.IsText() && v.Text() == "":
		r.Fail(limit, "a limit without "+suggest.Quoted(key), "add it")
	case !v.IsText():
		r.Fail(v, suggest.Quoted(key)+" is not a text: "+v.String())
	}
	return v.Text()
}

// number returns a whole number of a limit, 0 for none.
func (r *limitador) number(limit *strictyaml.Value, at map[string]*strictyaml.Value, key string, least int64) int64 {
	if at[key].IsAbsent() {
		r.Fail(limit, "a limit without "+suggest.Quoted(key), "add it")
		return 0
	}
	return r.reading.number(at[key], key, least)
}

// window sets how a limit is counted. 0 seconds were reported.
func (r *limitador) window(l *limit, at map[string]*strictyaml.Value, requests, seconds int64) {
	unit, multiplier := window(max(seconds, 1))
	l.spec = ratelimit.LimitSpec{
		Requests: requests, Unit: unit, Multiplier: uint64(multiplier), Algorithm: bucket.SlidingWindow,
	}
	if _, err := l.spec.Bucket(); err != nil {
		where := at["seconds"]
		if err.Field == "requests_per_unit" {
			where = at["max_value"]
		}
		r.Fail(where, err.Message, "write a smaller number")
	}
}

// window returns seconds as a multiple of the longest unit that fits. Weeks, months and years are used alone only.
func window(seconds int64) (unit descriptors.Unit, multiplier int64) {
	for _, unit := range descriptors.Units {
		if unit.Micros() == seconds*1_000_000 {
			return unit, 1
		}
	}
	for _, unit := range []descriptors.Unit{descriptors.Day, descriptors.Hour, descriptors.Minute} {
		if length := unit.Micros() / 1_000_000; seconds%length == 0 {
			return unit, seconds / length
		}
	}
	return descriptors.Second, seconds
}
