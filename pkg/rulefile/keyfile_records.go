package rulefile

import (
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
		Disabled: k.disabled.value, Weak: k.weak.value, Limit: b.ownLimit(k.limit), Previous: b.previous(k.previous),
	}
	b.checkID(k, r)
	b.checkHash(k, r)
	if !k.owner.mentioned {
		b.fail(k.at, "an API key without `owner`", "add `owner: <whose it is>`")
	}
	if k.expires.set && !r.Expires.After(r.NotBefore) {
		b.fail(k.expires.at, "`expires` is not after `not_before`", "so the key would never be valid")
	}
	if r.Weak && k.id.set {
		b.warn(k.weak.key, "key "+quoted(r.ID)+" is weak: for trying only", "whoever guesses it has it; `extauthz keys create` makes a strong one")
	}
	return r
}

func (b keyBuilder) checkID(k recordKeys, r apikey.Record) {
	if !k.id.mentioned {
		b.fail(k.at, "an API key without `id`", "add the one that `extauthz keys create` gave it")
		return
	}
	if !k.id.set {
		return
	}
	if err := r.CheckID(); err != nil {
		b.fail(k.id.at, "`id` cannot be "+quoted(r.ID), err.Error(), "a key of your own choice needs `weak: true`")
		return
	}
	if first, known := b.ids[r.ID]; known {
		b.fail(k.id.at, "a second key with the id "+quoted(r.ID), "the first is at "+b.position(first)+": delete one of them")
		return
	}
	b.ids[r.ID] = k.id.at
}

func (b keyBuilder) checkHash(k recordKeys, r apikey.Record) {
	if !k.hash.mentioned {
		b.fail(k.at, "an API key without `hash`", "add the one that `extauthz keys create` gave it")
		return
	}
	if !k.hash.set || !r.Weak {
		return
	}
	if first, known := b.weak[r.Hash]; known {
		b.fail(k.hash.at, "the same weak key twice", "the first is at "+b.position(first)+": delete one of them")
		return
	}
	b.weak[r.Hash] = k.hash.at
}

// previous is the hash before a rotation, nil for none.
func (b keyBuilder) previous(g given[previousKeys]) *apikey.Previous {
	if !g.set {
		return nil
	}
	if !g.value.hash.mentioned {
		b.fail(g.key, "`previous` without `hash`", "add the hash that the key had before, or delete `previous`")
	}
	if !g.value.validUntil.mentioned {
		b.fail(g.key, "`previous` without `valid_until`", "add until when the key before this one is valid, or delete `previous`")
	}
	return &apikey.Previous{Hash: g.value.hash.value, ValidUntil: g.value.validUntil.value}
}

// ownLimit is the limit of a key, nil for none.
func (b keyBuilder) ownLimit(g given[ownLimitKeys]) *ratelimit.LimitSpec {
	if !g.set {
		return nil
	}
	l := g.value
	if !l.unit.mentioned {
		b.fail(g.key, "a limit without `unit`", "add `unit: second` (or minute, hour, day, week, month, year)")
	}
	if !l.requestsPerUnit.mentioned {
		b.fail(g.key, "a limit without `requests_per_unit`", "add it")
	}
	own := ratelimit.LimitSpec{
		Requests: l.requestsPerUnit.value, Unit: l.unit.or(descriptors.UnknownUnit), Multiplier: uint64(l.unitMultiplier.value),
		Algorithm: l.algorithm.value, Burst: l.burst.value,
	}
	readable := l.unit.set && l.requestsPerUnit.set && l.unitMultiplier.set == l.unitMultiplier.mentioned &&
		l.algorithm.set == l.algorithm.mentioned && l.burst.set == l.burst.mentioned
	if err := apikey.CheckLimit(own); readable && err != nil {
		b.fail(l.place(err.Field), err.Error(), "the limit of a key must be one that can be counted exactly")
	}
	return &own
}

// place is where a part of the limit stands.
func (l ownLimitKeys) place(f ratelimit.SpecField) place {
	switch f {
	case ratelimit.SpecUnit:
		return l.unit.at
	case ratelimit.SpecMultiplier:
		return l.unitMultiplier.at
	case ratelimit.SpecBurst:
		return l.burst.at
	}
	return l.requestsPerUnit.at
}
