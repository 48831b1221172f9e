package rulefile

import (
	"strings"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// keyBuilder makes records of what a key file says, and reports what makes no sense.
type keyBuilder struct {
	*report
	// ids and weak are where each id, and each weak key, first stands.
	ids  map[string]place
	weak map[apikey.Hash]place
}

func (b keyBuilder) records(root keyRootKeys) []apikey.Record {
	switch {
	case root.keys.key == place{}:
		b.fail(place{line: 1, column: 1}, "a key file without `keys`", b.begins)
		return nil
	case !root.keys.mentioned:
		b.fail(root.keys.key, "`keys` is empty", "write `keys: []` when there are to be none")
		return nil
	}
	records := make([]apikey.Record, 0, len(root.keys.value))
	for _, k := range root.keys.value {
		records = append(records, b.record(k))
	}
	return records
}

// record makes one record. What is wrong is reported; the record is then of no use.
func (b keyBuilder) record(k recordKeys) apikey.Record {
	r := apikey.Record{
		ID: k.id.value, Hash: k.hash.value, Owner: k.owner.value, Plan: k.plan.value, Labels: k.labels.value, Scopes: k.scopes.value,
		NotBefore: k.notBefore.value, Expires: k.expires.value, Created: k.created.value,
		Disabled: k.disabled.value, Weak: k.weak.value,
	}
	if l := k.limit.value; k.limit.set {
		r.Limit = &ratelimit.LimitSpec{
			Requests: l.requestsPerUnit.value, Unit: l.unit.or(descriptors.UnknownUnit), Multiplier: uint64(l.unitMultiplier.value),
			Algorithm: l.algorithm.value, Burst: l.burst.value,
		}
		if !l.requestsPerUnit.mentioned { // which is another limit than 0
			b.fail(k.limit.key, "a limit without `requests_per_unit`", "add it")
		}
	}
	if p := k.previous.value; k.previous.set {
		r.Previous = &apikey.Previous{Hash: p.hash.value, ValidUntil: p.validUntil.value}
	}
	for _, m := range r.Check() {
		if at, ok := k.find(m); ok {
			b.fail(at, m.Message, m.Hints...)
		}
	}
	b.checkTwice(k, r)
	if r.Weak && k.id.set {
		b.warn(k.weak.key, "key "+quoted(r.ID)+" is weak: for trying only", "whoever guesses it has it; `extauthz keys create` makes a strong one")
	}
	return r
}

// find returns where a mistake is: at its value, or at what the value is missing from. ok is false if a value that it
// follows from was reported already, since it could not be read.
func (k recordKeys) find(m ratelimit.Mistake) (at place, ok bool) {
	keys := k.byPath()
	for _, path := range append(m.Also, m.Path) {
		if g := keys[path]; g.mentioned && !g.set {
			return place{}, false
		}
	}
	g, known := keys[m.Path]
	parent, _, nested := strings.Cut(m.Path, ".")
	switch {
	case !known: // labels and scopes were checked when they were read
		return place{}, false
	case g.mentioned:
		return g.at, true
	case nested:
		return keys[parent].key, true
	}
	return k.at, true
}

// byPath returns what is known of each key that is not checked when it is read.
func (k recordKeys) byPath() map[string]given[struct{}] {
	l, p := k.limit.value, k.previous.value
	return map[string]given[struct{}]{
		"id": k.id.bare(), "hash": k.hash.bare(), "owner": k.owner.bare(), "plan": k.plan.bare(), "expires": k.expires.bare(),
		"limit": k.limit.bare(), "limit.unit": l.unit.bare(), "limit.unit_multiplier": l.unitMultiplier.bare(),
		"limit.requests_per_unit": l.requestsPerUnit.bare(), "limit.algorithm": l.algorithm.bare(), "limit.burst": l.burst.bare(),
		"previous": k.previous.bare(), "previous.hash": p.hash.bare(), "previous.valid_until": p.validUntil.bare(),
	}
}

// bare is what is known of a key but for its value.
func (g given[V]) bare() given[struct{}] {
	return given[struct{}]{set: g.set, mentioned: g.mentioned, key: g.key, at: g.at}
}

// checkTwice reports an id and a weak key that another key has.
func (b keyBuilder) checkTwice(k recordKeys, r apikey.Record) {
	if first, known := b.ids[r.ID]; known && k.id.set {
		b.fail(k.id.at, "a second key with the id "+quoted(r.ID), "the first is at "+b.position(first)+": delete one of them")
	} else {
		b.ids[r.ID] = k.id.at
	}
	if !r.Weak || !k.hash.set {
		return
	}
	if first, known := b.weak[r.Hash]; known {
		b.fail(k.hash.at, "the same weak key twice", "the first is at "+b.position(first)+": delete one of them")
		return
	}
	b.weak[r.Hash] = k.hash.at
}
