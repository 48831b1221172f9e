package jwt

import (
	"cmp"
	"reflect"

	"github.com/extauthz/extauthz/pkg/authz"
)

// policy is what tokens are checked by. It does not change; another takes its place.
type policy struct {
	// before are the validators of the previous issuers, for requests that were on their way when the issuers changed.
	validators, before map[*authz.Issuer]*validator
	sources            map[string]*source
}

// validator checks the tokens of one issuer.
type validator struct {
	issuer *authz.Issuer
	source *source
}

// SetIssuers makes the issuers of Policies the active ones. Call it with each new set of policies, before they are
// used. Keys of a new file or URL are read at once, in the background; those that no issuer names any more are not
// read again. An issuer that equals a previous one keeps its keys and verified tokens. After Close it does nothing.
func (v *Verifier) SetIssuers(issuers []*authz.Issuer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	old := v.policy.Load()
	next := &policy{
		validators: make(map[*authz.Issuer]*validator, len(issuers)), before: old.validators, sources: map[string]*source{},
	}
	for _, issuer := range issuers {
		val := old.likewise(issuer)
		if val == nil {
			val = &validator{issuer, v.source(issuer, old, next)}
		}
		next.validators[issuer] = val
		next.sources[val.source.name] = val.source
	}
	v.policy.Store(next)
	for name, s := range old.sources {
		if next.sources[name] == nil {
			s.stop()
		}
	}
}

// likewise returns the validator of an issuer that is equal, so that its verified tokens stay known; nil if there is none.
func (p *policy) likewise(issuer *authz.Issuer) *validator {
	for known, v := range p.validators {
		if reflect.DeepEqual(known, issuer) {
			return v
		}
	}
	return nil
}

// source returns the source of an issuer's keys: the one that is there already, or a new one that begins to read.
func (v *Verifier) source(issuer *authz.Issuer, old, next *policy) *source {
	from := file(issuer.JWKSFile)
	if issuer.JWKSFile == "" {
		from = endpoint(issuer.JWKSURL, v.client)
	}
	if known := cmp.Or(next.sources[from.name], old.sources[from.name]); known != nil {
		return known
	}
	return newSource(v.cfg, from, &v.running)
}
